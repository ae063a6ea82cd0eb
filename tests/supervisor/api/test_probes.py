"""Probes, hooks, files and secrets between messages and facts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import probes, replies, requests
from supervisor.api.secrets import files_of
from supervisor.model.errors import BadRequest
from supervisor.model.health import Health, ProbeAnswer, ProbeResult
from supervisor.model.secrets import SecretWords
from supervisor.model.values import (
    CheckKind,
    Container,
    HealthSpec,
    HealthStatus,
    HookStage,
    OnUnhealthy,
    Phase,
    ProbeMarks,
    Probes,
    Spec,
)
from supervisor.model.views import View

ACTIONS = st.one_of(
    st.builds(pb.ProbeSpec, args=st.lists(st.sampled_from(["a", "-b", "c d"]), min_size=1)),
    st.builds(pb.ProbeSpec, tcp=st.builds(pb.TcpTarget, host=st.sampled_from(["", "::1"]), port=st.integers(1, 65535))),
    st.builds(
        pb.ProbeSpec, grpc=st.builds(pb.GrpcTarget, port=st.integers(1, 65535), service=st.sampled_from(["", "a.B"]))
    ),
    st.builds(
        pb.ProbeSpec,
        http=st.builds(
            pb.HttpTarget,
            port=st.integers(1, 65535),
            path=st.sampled_from(["/", "/a?b"]),
            tls=st.booleans(),
            headers=st.lists(st.builds(pb.HttpHeader, name=st.just("X"), value=st.just("y")), max_size=2),
        ),
    ),
)


@given(ACTIONS, st.integers(0, 10**9), st.integers(1, 5))
def test_a_probe_comes_back_as_it_went(probe: pb.ProbeSpec, delay_ns: int, failures: int) -> None:
    probe.initial_delay_ns, probe.failures = delay_ns, failures
    probe.interval_ns, probe.timeout_ns, probe.successes = 2 * 10**9, 3 * 10**9, 1
    message = pb.ContainerSpec(image="x", probes=pb.ProbesSpec(readiness=probe, liveness=probe))
    spec = requests.spec_of(message)
    assert spec.probes.liveness is not None and spec.probes.liveness.on_failure is OnUnhealthy.END
    assert spec.probes.readiness is not None and spec.probes.readiness.on_failure is OnUnhealthy.NONE
    assert probes.probes_message(spec.probes) == message.probes


def test_what_is_left_open_is_as_kubernetes_has_it() -> None:
    spec = requests.spec_of(pb.ContainerSpec(image="x", probes={"startup": {"args": ["a"]}})).probes.startup
    assert spec is not None
    assert (spec.interval_ns, spec.timeout_ns, spec.retries, spec.successes) == (10**10, 10**9, 3, 1)
    assert (spec.first_ns, spec.grace_seconds) == (0, None)


def test_hooks_come_back_as_they_went() -> None:
    for hook in (
        pb.HookSpec(args=["a"]),
        pb.HookSpec(sleep_seconds=5),
        pb.HookSpec(http=pb.HttpTarget(port=1, path="/")),
    ):
        message = pb.HooksSpec(post_start=hook, pre_stop=hook)
        spec = requests.spec_of(pb.ContainerSpec(image="x", hooks=message))
        assert probes.hooks_message(spec.hooks) == message


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"probes": {"liveness": {}}}, "probes.liveness: one of args, tcp, http, grpc"),
        ({"probes": {"liveness": {"args": ["a"], "tcp": {"port": 1}}}}, "one of args, tcp, http, grpc, and no two"),
        ({"probes": {"liveness": {"args": ["a"], "successes": 2}}}, "probes.liveness.successes '2'"),
        ({"probes": {"liveness": {"args": [""]}}}, "probes.liveness.args"),
        ({"probes": {"readiness": {"args": ["a"], "grace_seconds": 2}}}, "probes.readiness.grace_seconds"),
        ({"probes": {"startup": {"args": ["a"], "timeout_ns": 1}}}, "probes.startup.timeout_ns"),
        ({"probes": {"startup": {"tcp": {}}}}, "probes.startup.tcp.port '0'"),
        ({"probes": {"startup": {"tcp": {"port": 1, "host": "a.example"}}}}, "an address, or none"),
        ({"probes": {"startup": {"tcp": {"port": 1, "host": "fe80::1%eth0"}}}}, "an address, or none"),
        ({"probes": {"startup": {"http": {"port": 1, "path": "a"}}}}, "probes.startup.http.path"),
        ({"probes": {"startup": {"http": {"port": 1, "path": "/a\nb"}}}}, "probes.startup.http.path"),
        ({"probes": {"startup": {"http": {"port": 1, "headers": [{"name": "a b"}]}}}}, "http.headers"),
        ({"probes": {"startup": {"grpc": {"port": 1, "service": "a b"}}}}, "probes.startup.grpc.service"),
        ({"probes": {}, "health": {"args": ["a"]}}, "probes: `health` is another check"),
        ({"probes": {}, "pod": {}}, "a pause container has none"),
        ({"hooks": {}, "pod": {}}, "a pause container has none"),
        ({"hooks": {"pre_stop": {"args": ["a"], "sleep_seconds": 1}}}, "hooks.pre_stop: one of args, http"),
        ({"hooks": {"pre_stop": {"sleep_seconds": 90_000}}}, "hooks.pre_stop.sleep_seconds"),
        ({"pod": {"sidecars": ["a", "a"]}}, "pod.sidecars"), ({"pod": {"sidecars": ["a b"]}}, "pod.sidecars"),
        ({"pod": {"inits": ["a", "a"]}}, "pod.inits"),
        ({"address_mark": "127.0.0.1"}, "address_mark '127.0.0.1'"),
        ({"mounts": [{"source": "/a", "sub_path": "../b", "destination": "/a"}]}, "mounts[0].sub_path"),
        ({"mounts": [{"tmpfs": True, "sub_path": "b", "destination": "/a"}]}, "mounts[0].sub_path: a tmpfs has none"),
        ({"mounts": [{"anonymous": True, "sub_path": "b", "destination": "/a"}]}, "a mount with anonymous has none"),
        ({"pod": {"active_deadline_seconds": 2**31}}, "pod.active_deadline_seconds"),
        ({"mounts": [{"files": [{"path": "a"}], "source": "/x", "destination": "/a"}]}, "mounts[0].source: a mount of"),
        ({"mounts": [{"secret": True, "destination": "/a"}]}, "mounts[0].files: which ones?"),
        ({"mounts": [{"files": [{"path": "../a"}], "destination": "/a"}]}, "mounts[0].files[0].path"),
        ({"mounts": [{"files": [{"path": "a"}, {"path": "a/b"}], "destination": "/a"}]}, "'a' is a file"),
        ({"mounts": [{"files": [{"path": "a"}, {"path": "a"}], "destination": "/a"}]}, "is there twice"),
        ({"mounts": [{"files": [{"path": "a", "mode": 0o4755}], "destination": "/a"}]}, "files[0].mode"),
        ({"mounts": [{"files": [{"path": "a"}, {"path": "b"}], "single": True, "destination": "/a"}]}, "goes with one"),
        ({"mounts": [{"files": [{"path": "a", "content": b"x" * (1 << 21)}], "destination": "/a"}]}, "bytes in files"),
        ({"secrets": {"env": ["=x"]}}, "secrets.env[0]: allowed is KEY=VALUE"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_its_field(fields: dict[str, object], why: str) -> None:
    with pytest.raises(BadRequest) as caught:
        requests.spec_of(pb.ContainerSpec(image="x", **fields))  # type: ignore[arg-type]
    assert why in str(caught.value)


def test_no_refusal_and_no_reply_shows_a_secret() -> None:
    secret = pb.SecretsSpec(env=["A=hidden"], words={"$(A)": "hidden"})
    mount = pb.Mount(destination="/s", secret=True, files=[pb.MountFile(path="k", content=b"hidden", mode=0o400)])
    plain = pb.Mount(destination="/p", files=[pb.MountFile(path="k", content=b"shown", mode=0o400)])
    spec = requests.spec_of(pb.ContainerSpec(image="x", secrets=secret, mounts=[mount, plain], args=["$(A)"]))
    assert spec.secrets == SecretWords(("A=hidden",), (("$(A)", "hidden"),))
    assert spec.secrets.used(spec.args) == ("hidden",) and spec.mounts[0].files[0].data == b"hidden"
    message = replies.spec_message(spec)
    assert b"hidden" not in message.SerializeToString() and b"shown" in message.SerializeToString()
    assert (list(message.secrets.env), [each.path for each in message.mounts[0].files]) == (["A="], ["k"])
    with pytest.raises(BadRequest) as caught:
        requests.spec_of(pb.ContainerSpec(image="x", secrets=pb.SecretsSpec(env=["hidden"])))
    assert "hidden" not in str(caught.value)
    with pytest.raises(BadRequest, match="a bundle has its own environment"):
        requests.spec_of(pb.ContainerSpec(bundle="/b", secrets=secret))


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_paths_are_taken_as_they_are_or_refused(paths: list[str]) -> None:
    usable = [path for path in paths if "\0" not in path]
    mount = pb.Mount(destination="/a", files=[pb.MountFile(path=path) for path in usable])
    try:
        found = files_of("m", mount)
    except BadRequest:
        return
    for file in found:
        assert not file.path.startswith("/") and not {"", ".", ".."} & set(file.path.split("/"))


def test_states_are_what_is_stored_with_what_this_daemon_has_seen() -> None:
    check = HealthSpec(("a",), 1, 1, 3)
    spec = Spec("web", probes=Probes(startup=check, readiness=check))
    container = Container("c", spec, Phase.RUNNING, 1, 0, probes=ProbeMarks(HealthStatus.HEALTHY))
    log = (ProbeResult(1, 2, ProbeAnswer(False), b"refused"), ProbeResult(1, 2, ProbeAnswer(True)))
    seen = {CheckKind.READINESS: Health(check, 0, 0, failing_streak=2, log=log)}
    states = replies.container_message(View(container, probes=seen)).probes
    assert (states.started, states.ready, states.startup.status) == (True, False, "healthy")
    assert not states.HasField("liveness")
    assert [(each.kind, each.output) for each in states.readiness.log] == [("failed", b"refused"), ("passed", b"")]
    assert container.post_start is HookStage.NOT_YET
    assert not replies.container_message(View(Container("c", Spec("w"), Phase.RUNNING, 1, 0))).HasField("probes")

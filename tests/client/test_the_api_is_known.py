"""What exitd_client knows of the API: every field, every error, and the same words in both clients."""

import ast
import inspect
import pathlib
import typing
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import frozen_api
import pytest

from exitd_client import (
    AsyncClient,
    Client,
    Mount,
    NeverEnded,
    calls,
    errors,
    messages,
    objectcalls,
    objects,
    spec,
    values,
    wire,
)
from exitd_client.following import Following
from exitd_client.logfollowing import FollowedLog
from supervisor.model import errors as daemons

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "client" / "exitd_client"
VALUES = {
    "Exit": values.Exit,
    "Container": values.Container,
    "Event": values.Event,
    "Image": values.Image,
    "Exec": values.Exec,
    "LogsReply": values.LogPart,
    "By": values.By,
    "Oom": values.Oom,
    "Names": values.Names,
    "Process": values.Process,
    "VersionReply": values.Version,
    "ProbeStates": values.ProbeStates,
    "Attachment": values.Attachment,
    "ContainerStats": values.Stats,
    "NetworkCounters": values.NetworkCounters,
    "Network": values.Network,
    "Pod": objects.Pod,
    "HealthResult": objects.HealthResult,
    **objects.OBJECTS,
}


def fields_of(message: str) -> set[str]:
    return {field.name for field in messages.descriptor(message).fields}


def test_the_descriptors_are_those_of_the_api() -> None:
    assert (PACKAGE / "api.binpb").read_bytes() == frozen_api.COMMITTED.read_bytes()  # `make -s api` writes both


def test_the_client_imports_nothing_of_exitd() -> None:
    for path in PACKAGE.glob("*.py"):
        found = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        names = {name for node in found for name in _names(node)}
        assert not {name.split(".")[0] for name in names} & {"supervisor", "shim", "protos", "tests"}, path


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]


def test_every_field_of_a_spec_can_be_given_or_is_named_as_left_out() -> None:
    assert {*spec.SpecFields.__annotations__, *spec.GIVEN_APART} == fields_of("ContainerSpec")
    assert not {*spec.GIVEN_APART} & set(spec.SpecFields.__annotations__)


@pytest.mark.parametrize("message", spec.PARTS)
def test_every_field_of_a_part_can_be_given(message: str) -> None:
    assert {field.name for field in fields(spec.PARTS[message])} == fields_of(message)


def test_every_part_of_a_spec_has_its_value() -> None:
    assert _messages("ContainerSpec") - {"ContainerSpec"} == set(spec.PARTS)


def _messages(name: str) -> set[str]:
    """The messages that a message is made of, without maps."""
    below = {
        kind.name
        for field in messages.descriptor(name).fields
        if (kind := field.message_type) is not None and not kind.GetOptions().map_entry
    }
    return {name}.union(*(_messages(each) for each in below))


def test_everything_that_can_be_changed_can_be_given() -> None:
    assert {"id", *spec.UpdateFields.__annotations__} == fields_of("UpdateRequest")
    changed = calls.update("web", {"memory_bytes": 0, "cpuset_cpus": None}).request
    assert changed.HasField("memory_bytes") and not changed.HasField("cpuset_cpus")  # 0: no limit; left out: it stays
    with pytest.raises(TypeError, match="colour"):
        calls.update("web", {"colour": "red"})


def test_parts_within_parts_become_messages_and_no_secret_is_shown() -> None:
    target = spec.HttpTarget(port=80, headers=[spec.HttpHeader(name="a", value="b")])
    given = {
        "probes": spec.Probes(readiness=spec.Probe(http=target, grace_seconds=0)),
        "secrets": spec.Secrets(env={"KEY": "s3cret"}, words={"$(KEY)": "s3cret"}),
        "mounts": [Mount(destination="/d", files=[spec.MountFile(path="f", content=b"s3cret")], secret=True)],
        "ports": [spec.Port(container_port=80)],
        "addresses": [spec.AddressWish(ips=["10.0.0.2"])],
    }
    made = calls.create("x", ["true"], given, replaces=False).request.spec
    readiness = made.probes.readiness
    assert (readiness.http.headers[0].name, readiness.HasField("grace_seconds")) == ("a", True)
    assert not made.probes.HasField("startup") and not readiness.HasField("tcp")
    assert (list(made.secrets.env), dict(made.secrets.words)) == (["KEY=s3cret"], {"$(KEY)": "s3cret"})
    assert (made.mounts[0].files[0].content, made.ports[0].container_port) == (b"s3cret", 80)
    assert list(made.addresses[0].ips) == ["10.0.0.2"]
    assert "s3cret" not in repr(given)


def test_what_networks_and_probes_say_is_read() -> None:
    attachment = {"network": "n", "addresses": ["10.0.0.2/16"]}
    probes = {"started": True, "startup": {"status": "healthy"}}
    made = messages.message("Container")(
        networks=[attachment], probes=probes, network_hint="h", of_containerd=True, mount_sources=["/a"],
        entrypoint_words=2,
    )  # fmt: skip
    found = values.container_of(made)
    assert [(each.network, each.addresses) for each in found.networks] == [("n", ("10.0.0.2/16",))]
    assert found.probes == values.ProbeStates(started=True, ready=False, startup="healthy", liveness="", readiness="")
    assert (found.network_hint, found.of_containerd) == ("h", True)
    assert (found.mount_sources, found.entrypoint_words) == (("/a",), 2)
    none = values.container_of(messages.message("Container")())
    assert (none.networks, none.probes) == ((), None)
    network = messages.message("ContainerStats")(network={"sent_bytes": 7}).network
    assert values.stats_of(messages.message("ContainerStats")(network=network)).network == values.NetworkCounters(
        received_bytes=0, sent_bytes=7
    )
    nothing = values.stats_of(messages.message("ContainerStats")())
    assert (nothing.network, nothing.cpu_pressure) == (None, None)
    waited = messages.message("ContainerStats")(io_pressure={"some": {"avg10": 1.5, "total_ns": 7}}).io_pressure
    pressure = values.stats_of(messages.message("ContainerStats")(io_pressure=waited)).io_pressure
    assert pressure is not None and (pressure.some.avg10, pressure.some.total_ns, pressure.full.avg300) == (1.5, 7, 0.0)


@pytest.mark.parametrize("message", VALUES)
def test_every_field_of_an_answer_is_read_or_is_named_as_left_out(message: str) -> None:
    renamed = values.RENAMED.get(message, {})
    known = {renamed.get(name, name) for name in fields_of(message) - set(values.LEFT.get(message, ()))}
    assert known <= {field.name for field in fields(VALUES[message])}


def test_every_call_of_the_api_is_made_by_both_clients() -> None:
    made = {*_words(PACKAGE / "calls.py"), *_words(PACKAGE / "objectcalls.py")}
    named = {method.name for method in messages.service().methods}
    for client in ("client.py", "aio.py"):
        assert named - made - {*_words(PACKAGE / client)} == set()
        used = {
            node.attr
            for node in ast.walk(ast.parse((PACKAGE / client).read_text()))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and "calls" in node.value.id
        }
        assert _functions(calls) | _functions(objectcalls) <= used | {"events", "grace_of"}  # events: in following.py


def _words(path: pathlib.Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _functions(module: Any) -> set[str]:
    found = inspect.getmembers(module, inspect.isfunction)
    return {name for name, each in found if each.__module__ == module.__name__ and not name.startswith("_")}


def test_what_a_message_leaves_out_is_none_or_empty() -> None:
    usage = objects.read(objects.DiskUsage, messages.message("DiskUsageReply")(images={"count": 2}))
    assert usage.images == objects.Occupied(count=2, active=0, bytes=0, complete=False)
    assert (usage.containers, usage.layers) == ((), None)
    watch = objects.read(objects.Watch, messages.message("Watch")(target="7", by={"uid": 0}))
    assert (watch.target, watch.since, watch.by) == ("7", None, values.By(uid=0, pid=None, policy=""))
    info = objects.read(objects.Info, messages.message("InfoReply")(evidence={"record": True}, keeper={"pid": 7}))
    assert (info.evidence, info.keeper) == ({"record": True}, values.Process(pid=7, started_ticks=0))
    failed = messages.message("HealthResult")(kind="exited", code=0)
    assert objects.read(objects.HealthResult, failed, status="healthy").code == 0
    stuck = {"record": "a-1", "ports": [{"host_port": 80}], "networks": ["n"]}
    (given_up,) = objects.read(
        objects.PrunedNetworks, messages.message("PruneNetworksReply")(given_up=[stuck])
    ).given_up
    assert (given_up.record, given_up.networks, given_up.ports[0].host_port) == ("a-1", ("n",), 80)


def test_a_tar_is_cut_into_parts_and_an_error_of_its_reader_is_kept() -> None:
    whole = list(objectcalls.CopyRequests("web", "/d", b"x" * (objectcalls.CHUNK_BYTES + 1), keep_owner=True))
    assert [each.WhichOneof("item") for each in whole] == ["start", "data", "data", "finished"]
    assert (whole[0].start.directory, whole[0].start.keep_owner, len(whole[2].data)) == ("/d", True, 1)

    def broken() -> Iterator[bytes]:
        yield b"x"
        raise OSError("the disk")

    cut = objectcalls.CopyRequests("web", "/d", broken(), keep_owner=False)
    with pytest.raises(OSError, match="the disk"):
        list(cut)
    assert isinstance(cut.error, OSError)


def test_every_error_of_exitd_has_its_class() -> None:
    for error, code in daemons.CODES.items():
        mine = errors.REASONS[error.reason]
        assert mine.__name__ == error.__name__, code
        assert issubclass(mine, errors.REASONS.get(error.__base__.reason, errors.ExitdError)), error  # type: ignore[union-attr]


def test_a_reason_of_a_newer_exitd_is_kept() -> None:
    error = errors.named("QUITE_NEW", "words", {"id": "1"})
    assert (type(error), error.reason, str(error), error.metadata) == (
        errors.ExitdError,
        "QUITE_NEW",
        "words",
        {"id": "1"},
    )


def methods_of(client: type) -> list[str]:
    return [name for name, value in vars(client).items() if not name.startswith("_") and callable(value)]


METHODS = methods_of(Client)


@pytest.mark.parametrize("name", METHODS)
def test_both_clients_take_the_same_words_and_give_the_same(name: str) -> None:
    blocking, other = (getattr(each, name) for each in (Client, AsyncClient))
    assert _parameters(blocking) == _parameters(other)
    gives, awaited = (typing.get_type_hints(each)["return"] for each in (blocking, other))
    if typing.get_origin(gives) is Iterator:
        assert typing.get_origin(awaited) is AsyncIterator
        assert typing.get_args(gives) == typing.get_args(awaited)
    else:
        assert gives == awaited and inspect.iscoroutinefunction(other)


def _parameters(method: Any) -> list[tuple[str, Any, Any, Any]]:
    found = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default, each.annotation) for each in found]


def test_both_clients_have_the_same_methods() -> None:
    assert [
        name for name, value in vars(AsyncClient).items() if not name.startswith("_") and callable(value)
    ] == METHODS


@pytest.mark.parametrize("name", [name for name in METHODS if name != "close"])
def test_every_call_takes_a_limit(name: str) -> None:
    assert "timeout" in inspect.signature(getattr(Client, name)).parameters


def test_a_spec_refuses_what_is_no_field_and_a_line_where_words_are_wanted() -> None:
    with pytest.raises(TypeError, match="colour"):
        calls.create("", ["true"], {"colour": "red"}, replaces=False)
    with pytest.raises(TypeError, match="list of words"):
        calls.create("", "echo hi", {}, replaces=False)
    with pytest.raises(TypeError):
        calls.create("", ["true"], {"memory_bytes": "64m"}, replaces=False)
    made = calls.create("x", ["true"], {"mounts": [Mount(destination="/d", mode=0)], "name": None}, replaces=True)
    (mount,) = made.request.spec.mounts
    assert (mount.destination, mount.HasField("mode"), mount.HasField("group")) == ("/d", True, False)


def test_an_end_of_a_kind_that_is_not_known_has_no_number() -> None:
    end = values.exit_of(messages.message("Exit")(kind="teleported", at={"seconds": 1, "nanos": 1_999}))
    assert (end.code, end.signal, end.is_success, end.at_ns) == (None, None, False, 1_000_001_999)
    assert end.at == datetime(1970, 1, 1, 0, 0, 1, 1, UTC)


def test_a_wait_without_an_end_says_so() -> None:
    with pytest.raises(NeverEnded):
        calls.wait("web", condition="removed", run=0, exec_id="").read(messages.message("WaitReply")())


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(TypeError, match="zone"):
        values.moment(datetime(2026, 1, 1))
    assert values.moment(datetime(1970, 1, 2, 0, 0, 0, 5, UTC)) == {"seconds": 86_400, "nanos": 5_000}


def reply(**item: Any) -> Any:
    return messages.message("EventsReply")(**item)


def test_a_reader_of_events_goes_on_behind_the_last_number_and_back_for_what_came_too_fast() -> None:
    following: Any = Following(3, None, ("type=exit",), True)
    assert following.call().request.from_seq == 3
    event = following.read(reply(event={"seq": 5, "type": "exit"}))
    assert event is not None and event.seq == 5
    assert following.read(reply(bookmark=9)) is None
    assert following.call().request.from_seq == 10
    assert following.read(reply(event={"seq": 7})) is None  # it was seen
    assert not following.missed
    assert following.read(reply(lost={"from": 12, "to": 20})) is None
    assert following.missed
    assert (following.call().request.from_seq, following.missed) == (12, False)


def log_reply(**item: Any) -> Any:
    return messages.message("LogsReply")(**item)


def test_a_reader_of_a_log_goes_on_behind_the_last_byte() -> None:
    log = FollowedLog(calls.logs("web", follow=True, tail=3, since=None, until=None, run=0))
    assert (log.call().request.positions, log.call().request.HasField("after"), log.may_go_on) == (True, False, True)
    assert log.read(log_reply(position={"offset": 5})) is None
    for data, stream in ((b"abc", "stdout"), (b"x", "stderr")):
        part = log.read(log_reply(data=data, stream=stream))
        assert part is not None and (part.data, part.stream) == (data, stream)
    assert log.call().request.after.offset == 5
    assert log.read(log_reply(position={"offset": 5})) is None
    assert log.read(log_reply(data=b"ab", stream="stdout")) is None
    assert log.read(log_reply(position={"offset": 6})) is None  # within what was shown
    part = log.read(log_reply(data=b"cd", stream="stdout"))
    assert part is not None and part.data == b"d"
    assert log.read(log_reply(data=b"x", stream="stderr")) is None
    assert log.read(log_reply(position={"offset": 9})) is None
    assert log.call().request.after.offset == 9
    gap = log.read(log_reply(position={"offset": 0}, gap=True))
    assert gap is not None and (gap.data, gap.gap) == (b"", True)


def test_a_log_without_positions_goes_on_only_where_nothing_was_shown() -> None:
    log = FollowedLog(calls.logs("web", follow=True, tail=0, since=None, until=None, run=0))
    log.call()
    log.read(log_reply(data=b"a", stream="stdout"))
    assert not log.may_go_on


def test_the_socket_is_found_as_exitctl_finds_it() -> None:
    assert wire.socket_path(None, {}) == "/run/exitd/exitd.sock"
    assert wire.socket_path(None, {"EXITD_STATE": "/s"}) == "/s/exitd.sock"
    assert wire.socket_path(None, {"EXITD_STATE": "/s", "EXITD_ADDRESS": "unix:///a.sock"}) == "/a.sock"
    assert wire.socket_path("unix:/b.sock", {"EXITD_ADDRESS": "/a.sock"}) == "/b.sock"
    with pytest.raises(errors.BadRequest, match="107"):
        wire.socket_path("/" + "x" * 107, {})


def test_a_token_is_letters_and_digits_or_none() -> None:
    assert [wire.token_of(line) for line in (b"ab12\n", b"", b"a b\n", b"\xff\xfe\n")] == ["ab12", "", "", ""]


def test_every_error_is_there_for_all() -> None:
    assert set(errors.__all__) == {"ExitdError", *(each.__name__ for each in errors.REASONS.values())}

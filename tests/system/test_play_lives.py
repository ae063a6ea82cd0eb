"""Probes, hooks, sidecars and deadlines of manifests on real containers, also where exitd is killed in between."""

import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from tests.system import oracle
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.lives import events, first_exit
from tests.system.waits import until

WAITS = "while :; do sleep 0.02; done"
HEEDS = f"trap 'exit 3' TERM; {WAITS}"
DEAF = f"trap '' TERM; {WAITS}"


@dataclass(frozen=True)
class Field:
    """exitctl, a directory for manifests, and one that the containers have at /mnt."""

    cli: Cli
    base: pathlib.Path

    def play(self, spec: str, *words: str, name: str = "web", volumes: str = "") -> None:
        text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n{spec}"
        text += f"  volumes: [{{name: v, hostPath: {{path: {self.base}}}}}{volumes}]\n"
        (self.base / f"{name}.yaml").write_text(text)
        said = self.cli("play", *words, str(self.base / f"{name}.yaml"))
        assert (said.code, said.err) == (0, ""), said

    def down(self, name: str = "web") -> None:
        self.cli.ok("play", "--down", str(self.base / f"{name}.yaml"))

    def lines(self, name: str) -> list[str]:
        path = self.base / name
        return path.read_text().split() if path.exists() else []

    def id(self, name: str) -> str:
        return self.cli.field(name, ".Id")

    def probes(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.cli.ok("inspect", "-f", "{{json .State.Probes}}", name))
        return found


@pytest.fixture
def stage(daemon: Daemon, cli: Cli) -> Iterator[Field]:
    base = pathlib.Path(tempfile.mkdtemp(prefix="share-", dir=daemon.base))
    yield Field(cli, base)
    oracle.clear(daemon)
    shutil.rmtree(base)


def container(name: str, script: str, more_mounts: str = "", **fields: str) -> str:
    """One line of a list of containers; /mnt is the shared directory."""
    more = "".join(f", {key}: {value}" for key, value in fields.items())
    mounts = f"[{{name: v, mountPath: /mnt}}{more_mounts}]"
    return f"{{name: {name}, image: /, command: [sh, -c, {json.dumps(script)}], volumeMounts: {mounts}{more}}}"


def probe(script: str, **fields: int) -> str:
    more = "".join(f", {key}: {value}" for key, value in fields.items())
    return f"{{exec: {{command: [sh, -c, {json.dumps(script)}]}}, periodSeconds: 1, timeoutSeconds: 20{more}}}"


def test_a_liveness_probe_restarts_by_the_policy_a_readiness_probe_is_shown_and_a_startup_probe_holds_both_back(
    stage: Field, client: Client
) -> None:
    probes = {
        "startupProbe": probe("echo s >>/mnt/probed; test -e /mnt/begun", failureThreshold=1000),
        "livenessProbe": probe("echo l >>/mnt/probed; test ! -e /mnt/sick", failureThreshold=1),
        "readinessProbe": probe("test -e /mnt/ready", successThreshold=1),
    }
    stage.play(f"  containers: [{container('app', HEEDS, **probes)}]\n")
    until(lambda: len(stage.lines("probed")) > 1, "two probes of its start")
    assert set(stage.lines("probed")) == {"s"}
    assert stage.cli.ok("ps", "--format", "{{.Status}}", "--filter", "name=web-app").endswith("(starting)")
    (stage.base / "begun").touch()
    until(lambda: "l" in stage.lines("probed"), "a liveness probe")
    found = stage.probes("web-app")
    assert (found["Started"], found["Ready"]) == (True, False)
    (stage.base / "ready").touch()
    until(lambda: stage.probes("web-app")["Ready"], "not ready")
    assert stage.cli.ok("ps", "--format", "{{.Status}}", "--filter", "name=web-app").endswith("(ready)")
    (stage.base / "sick").touch()
    exit_ = first_exit(client, stage.id("web-app"))
    assert (exit_.code, exit_.reason, exit_.by.policy, exit_.decision) == (3, "health", "liveness-probe", "restart")
    (stage.base / "sick").unlink()
    until(lambda: stage.probes("web-app")["Ready"] and client.inspect("web-app").run > 1, "ready again")
    told = [dict(each.attributes) for each in events(client, exit_.container_id) if each.type == "health_status"]
    assert [(each["probe"], each["health"]) for each in told[:1]] == [("startup", "healthy")]


def test_an_end_that_a_probe_has_begun_is_completed_by_the_next_exitd_and_its_reason_is_kept(
    stage: Field, daemon: Daemon
) -> None:
    liveness = probe("test -e /mnt/well", failureThreshold=1, terminationGracePeriodSeconds=3)
    script = "trap 'echo term >>/mnt/said' TERM; while :; do sleep 0.02; done"
    stage.play(f"  containers: [{container('app', script, livenessProbe=liveness)}]\n")
    until(lambda: stage.lines("said"), "the stop signal")
    (stage.base / "well").touch()
    daemon.restart()
    with daemon.client() as again:
        id = stage.id("web-app")
        exit_ = first_exit(again, id)
        assert (exit_.run, exit_.signal, exit_.reason, exit_.by.policy) == (1, 9, "health", "liveness-probe")
        until(lambda: again.inspect(id).run == 2 and again.inspect(id).phase == pb.PHASE_RUNNING, "the next run")
        assert not list(again.exits(pb.ExitsRequest(id=id)))[1:]


SERVER = """
import http.server, os, ssl, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        open('/mnt/asked', 'a').write(self.path + '\\n')
        self.send_response(200 if self.headers['X-A'] == 'b' and not os.path.exists('/mnt/sick') else 503)
        self.end_headers()
http.server.HTTPServer(('127.0.0.1', 8080), H).serve_forever()
"""


HEALTH = """
import concurrent.futures, grpc, os, signal, time
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
servicer, server = health.HealthServicer(), grpc.server(concurrent.futures.ThreadPoolExecutor(2))
health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
server.add_insecure_port('127.0.0.1:50051')
server.start()
signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
while True:
    servicer.set('shop', 2 if os.path.exists('/mnt/sick') else 1)
    time.sleep(0.02)
"""


def test_a_server_of_grpc_is_asked_inside_its_own_network_and_ended_when_it_does_not_serve(
    stage: Field, client: Client
) -> None:
    (stage.base / "health.py").write_text(HEALTH)
    shop = "grpc: {port: 50051, service: shop}, periodSeconds: 1, timeoutSeconds: 20"
    packages = pathlib.Path(grpc.__file__).parent.parent
    fields = {
        "startupProbe": "{grpc: {port: 50051}, periodSeconds: 1, failureThreshold: 1000}",
        "livenessProbe": f"{{{shop}, failureThreshold: 1}}",
        "readinessProbe": f"{{{shop}}}",
        "env": "[{name: PYTHONPATH, value: /packages}]",
    }
    app = container("app", "exec python3 /mnt/health.py", ", {name: p, mountPath: /packages}", **fields)
    stage.play(f"  containers: [{app}]\n", volumes=f", {{name: p, hostPath: {{path: {packages}}}}}")
    until(lambda: stage.probes("web-app")["Ready"], "not ready")
    (stage.base / "sick").touch()
    exit_ = first_exit(client, stage.id("web-app"))
    assert (exit_.code, exit_.reason, exit_.by.policy) == (3, "health", "liveness-probe")


def test_a_server_is_asked_over_http_and_tcp_inside_its_own_network(stage: Field, client: Client) -> None:
    (stage.base / "server.py").write_text(SERVER)
    get = "{port: web, path: /healthz, httpHeaders: [{name: X-A, value: b}]}"
    fields = {
        "readinessProbe": f"{{httpGet: {get}, periodSeconds: 1, timeoutSeconds: 20}}",
        "startupProbe": "{tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 1000}",
        "ports": "[{name: web, containerPort: 8080}]",
    }
    stage.play(f"  containers: [{container('app', 'exec python3 /mnt/server.py', **fields)}]\n")
    until(lambda: stage.probes("web-app")["Ready"], "not ready")
    assert set(stage.lines("asked")) == {"/healthz"}
    (stage.base / "sick").touch()
    until(lambda: not stage.probes("web-app")["Ready"], "ready though it is sick")
    last = client.inspect("web-app").probes.readiness.log[-1]
    assert (last.kind, b"503" in last.output) == ("failed", True)


def test_hooks_run_once_after_the_start_and_before_the_stop_signal_also_over_a_killed_exitd(
    stage: Field, daemon: Daemon
) -> None:
    hooks = (
        "{postStart: {exec: {command: [sh, -c, 'echo post >>/mnt/said']}}, "
        "preStop: {exec: {command: [sh, -c, 'echo pre >>/mnt/said; sleep 1000']}}}"
    )
    script = "trap 'echo term >>/mnt/said; exit 3' TERM; while :; do sleep 0.02; done"
    app = container("app", script, lifecycle=hooks)
    stage.play(f"  terminationGracePeriodSeconds: 5\n  containers: [{app}]\n")
    until(lambda: stage.probes("web-app")["Started"], "its hook")
    stopping = stage.cli.begin("stop", "web-app")
    until(lambda: "pre" in stage.lines("said"), "the hook before its end")
    daemon.restart()
    stopping.communicate()
    with daemon.client() as again:
        exit_ = first_exit(again, stage.id("web-app"))
    assert (exit_.code, exit_.reason) == (3, "stop")
    assert stage.lines("said") == ["post", "pre", "term"]


def test_a_hook_that_takes_longer_than_the_grace_ends_with_it_and_a_failed_first_one_ends_the_run(
    stage: Field, client: Client
) -> None:
    slow = "{preStop: {exec: {command: [sh, -c, 'sleep 1000']}}}"
    stage.play(f"  terminationGracePeriodSeconds: 1\n  containers: [{container('app', DEAF, lifecycle=slow)}]\n")
    id = stage.id("web-app")
    stage.cli.ok("stop", "web-app")
    exit_ = first_exit(client, id)
    assert (exit_.signal, exit_.reason) == (9, "stop")
    bad = "{postStart: {exec: {command: ['false']}}}"
    stage.play(f"  restartPolicy: Never\n  containers: [{container('app', HEEDS, lifecycle=bad)}]\n", name="other")
    exit_ = first_exit(client, stage.id("other-app"))
    assert (exit_.reason, exit_.by.policy, exit_.decision) == ("health", "post-start", "ended")


def test_sidecars_begin_before_the_others_and_end_after_them_in_reverse(stage: Field, client: Client) -> None:
    def side(name: str) -> str:
        script = f"echo +{name} >>/mnt/said; trap 'echo -{name} >>/mnt/said; exit 0' TERM; {WAITS}"
        started = probe(f"grep -q .{name} /mnt/said")
        return container(name, script, restartPolicy="Always", startupProbe=started)

    main = container("app", "echo +app >>/mnt/said; until test -e /mnt/go; do sleep 0.02; done; echo -app >>/mnt/said")
    spec = f"  restartPolicy: Never\n  initContainers: [{side('a')}, {side('b')}]\n  containers: [{main}]\n"
    stage.play(spec)
    until(lambda: len(stage.lines("said")) == 3, "all of them")
    assert stage.lines("said") == ["+a", "+b", "+app"]
    id = stage.id("web")
    (stage.base / "go").touch()
    until(lambda: client.inspect(id).phase == pb.PHASE_EXITED, "the pod's end")
    assert stage.lines("said") == ["+a", "+b", "+app", "-app", "-b", "-a"]
    exits = {each.name: (each.reason, each.by.policy, each.decision) for each in client.exits(pb.ExitsRequest())}
    assert exits["web-b"] == exits["web-a"] == ("stop", "last-member", "ended")


def test_the_code_of_a_sidecar_is_not_the_plays(stage: Field) -> None:
    side = container("side", f"trap 'exit 9' TERM; {WAITS}", restartPolicy="Always")
    main = container("app", "exit 0")
    stage.play(f"  restartPolicy: Never\n  initContainers: [{side}]\n  containers: [{main}]\n", "--wait")


def test_a_sidecar_that_does_not_begin_to_work_in_time_takes_the_play_back(stage: Field) -> None:
    side = container("side", HEEDS, restartPolicy="Always", startupProbe=probe("false", failureThreshold=1000))
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  terminationGracePeriodSeconds: 0\n"
    text += f"  initContainers: [{side}]\n  containers: [{container('app', HEEDS)}]\n"
    text += f"  volumes: [{{name: v, hostPath: {{path: {stage.base}}}}}]\n"
    (stage.base / "web.yaml").write_text(text)
    said = stage.cli("play", "--init-timeout", "2", str(stage.base / "web.yaml"))
    assert said.code != 0 and "sidecar web-side had not begun to work in time; --init-timeout" in said.err
    assert stage.cli.ok("pods", "-q") == ""


def test_stopping_a_pod_ends_its_sidecars_last_and_a_killed_exitd_changes_nothing_of_it(
    stage: Field, daemon: Daemon
) -> None:
    side = container("side", f"trap 'echo -side >>/mnt/said; exit 0' TERM; {WAITS}", restartPolicy="Always")
    main = container("app", f"trap 'echo term; until test -e /mnt/go; do sleep 0.02; done; "
                            f"echo -app >>/mnt/said; exit 0' TERM; {WAITS}")  # fmt: skip
    stage.play(f"  initContainers: [{side}]\n  containers: [{main}]\n")
    pod = stage.id("web")
    stopping = stage.cli.begin("stopp", "web")
    until(lambda: stage.cli.ok("logs", "web-app") == "term", "the stop signal")
    daemon.restart()
    stopping.communicate()
    (stage.base / "go").touch()
    with daemon.client() as again:
        until(lambda: again.inspect(pod).phase == pb.PHASE_EXITED, "the pod's end")
    assert stage.lines("said") == ["-app", "-side"]


def test_a_pods_time_is_over_whichever_exitd_is_there_and_nothing_begins_again(stage: Field, daemon: Daemon) -> None:
    script = f"echo run >>/mnt/said; trap 'exit 3' TERM; {WAITS}"
    stage.play(f"  activeDeadlineSeconds: 3\n  containers: [{container('app', script)}]\n")
    pod, id = stage.id("web"), stage.id("web-app")
    daemon.restart()
    with daemon.client() as again:
        exit_ = first_exit(again, id)
        assert (exit_.code, exit_.reason, exit_.by.policy, exit_.decision) == (3, "timeout", "active-deadline", "ended")
        until(lambda: again.inspect(pod).phase == pb.PHASE_EXITED, "the pod's end")
        assert again.inspect(pod).exit.decision == "ended"
    assert stage.lines("said") == ["run"]


def test_a_pod_whose_volume_outgrows_its_limit_is_ended_for_good_also_by_the_next_exitd_and_says_which_and_how_far(
    stage: Field, daemon: Daemon
) -> None:
    grows = "dd if=/dev/zero of=/cache/big bs=1M count=2 2>/dev/null; " + HEEDS
    app = container("app", grows, ", {name: c, mountPath: /cache}")
    other = container("other", DEAF, ", {name: c, mountPath: /cache, subPath: below}")
    spec = f"  restartPolicy: Always\n  containers: [{app}, {other}]\n"
    stage.play(spec, volumes=", {name: c, emptyDir: {sizeLimit: 1Mi}}")
    pod = stage.id("web")
    with daemon.client() as client:
        until(lambda: any(each.type == "evict" for each in events(client, pod)), "its eviction")
    daemon.restart()
    with daemon.client() as again:
        ends = {name: first_exit(again, stage.id(name)) for name in ("web-app", "web-other", "web")}
        assert {(each.reason, each.by.policy, each.decision) for each in ends.values()} == {
            ("evicted", "size-limit", "ended")
        }
        assert [ends["web-app"].code, ends["web-other"].signal] == [3, 9]
        (told,) = (dict(each.attributes) for each in events(again, pod) if each.type == "evict")
        assert (told["volume"], told["limit_bytes"], int(told["size_bytes"]) >= 2 << 20) == ("c", str(1 << 20), True)
        assert again.inspect(pod).evicted == again.inspect("web-other").evicted != ""
    why = stage.cli.ok("why", "web-app")
    assert "exitd ended it because an emptyDir of its pod had grown above its sizeLimit." in why
    assert f"Volume c took {told['size_bytes']} bytes, {1 << 20} is its limit." in why

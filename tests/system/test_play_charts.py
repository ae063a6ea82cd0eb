"""Manifests after the shapes of well-known charts, in tests/system/manifests: each is played, looked at, taken down.

Their images are stand-ins under the charts' names (tests/system/standins.py). What is tried is exitd's part of each.
"""

import json
import pathlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from tests.system import oracle, standins
from tests.system.daemons import Daemon, left
from tests.system.exitctl import Cli, Said
from tests.system.standins import MANIFESTS
from tests.system.waits import until


@dataclass
class Chart:
    """One manifest that is being played."""

    cli: Cli
    shared: pathlib.Path
    file: pathlib.Path
    said: Said

    def logs(self, name: str) -> list[str]:
        return self.cli.ok("logs", name).split("\n")

    def ready(self, *names: str) -> None:
        for name in names:
            until(lambda name=name: self.probes(name)["Ready"], f"{name} is not ready")  # type: ignore[misc]

    def probes(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.cli.ok("inspect", "-f", "{{json .State.Probes}}", name))
        return found

    def ended(self, name: str) -> pb.Exit:
        with self.cli.daemon.client() as client:
            until(lambda: client.inspect(name).phase == pb.PHASE_EXITED, f"{name} goes on", 60)
            return client.inspect(name).exit

    def runs(self, name: str) -> int:
        with self.cli.daemon.client() as client:
            return client.inspect(name).run


class Charts:
    def __init__(self, cli: Cli, shared: pathlib.Path) -> None:
        self._cli = cli
        self._shared = shared
        self.played: set[str] = set()

    def play(self, name: str, *words: str, code: int = 0, warnings: str = "") -> Chart:
        text = (MANIFESTS / f"{name}.yaml").read_text().replace("@SHARED@", str(self._shared))
        file = self._shared / f"{name}.yaml"
        file.write_text(text)
        self.played.add(name)
        said = self._cli("play", *words, str(file))
        assert (said.code, warnings in said.err if warnings else said.err) == (code, True if warnings else ""), said
        return Chart(self._cli, self._shared, file, said)


@pytest.fixture(scope="module")
def loaded(daemon: Daemon) -> Iterator[pathlib.Path]:
    """The images are in the store, and nothing else has changed at the end."""
    with tempfile.TemporaryDirectory(dir=daemon.base) as directory:
        base = pathlib.Path(directory)
        archive = base / "images.tar"
        archive.write_bytes(standins.archive())
        Cli(daemon).ok("image", "load", f"docker-archive:{archive}")
        with daemon.client() as client:
            daemon.warm(client)
        yield base


@pytest.fixture
def charts(daemon: Daemon, cli: Cli, loaded: pathlib.Path) -> Iterator[Charts]:
    before = left(daemon)
    with tempfile.TemporaryDirectory(dir=loaded) as directory:
        made = Charts(cli, pathlib.Path(directory))
        yield made
        for name in made.played:
            cli("play", "--down", f"{directory}/{name}.yaml")
    assert cli.ok("pods", "-q") == "", "--down has left something"
    for volume in cli.ok("volume", "ls", "-q").split():
        cli.ok("volume", "rm", volume)
    oracle.clear(daemon)
    until(lambda: replace(left(daemon), descriptors=0) == replace(before, descriptors=0), "something is left")


def shown(chart: Chart) -> str:
    """All that others see of it."""
    names = chart.cli.ok("ps", "-aq", "--no-trunc").split()
    said = [chart.cli.ok(*words) for words in (("inspect", *names), ("ps", "-a"), ("exits",))]
    return "".join((*said, chart.said.out, chart.said.err, chart.cli.daemon.log.read_text()))


def test_nginx_with_its_site_in_a_config_map(charts: Charts) -> None:
    chart = charts.play("nginx-configmap")
    chart.ready("nginx-nginx")
    assert chart.cli.ok("exec", "nginx-nginx", "cat", "/usr/share/nginx/html/index.html") == "<h1>hello</h1>"
    assert "listen 80" in chart.cli.ok("exec", "nginx-nginx", "cat", "/etc/nginx/conf.d/default.conf")
    until(lambda: chart.logs("nginx-nginx")[:2] == ["nginx -g daemon off;", "/"], "its first lines")


def test_redis_with_its_configuration_and_two_probes(charts: Charts) -> None:
    chart = charts.play("redis")
    chart.ready("redis-redis")
    words = ["redis-server /etc/redis/redis.conf", "maxmemory 64mb"]
    until(lambda: chart.logs("redis-redis")[:2] == words, "its first lines")
    until(lambda: _status(chart, "redis-redis", "Liveness") == "healthy", "not live")


def test_postgres_with_a_claim_and_a_secret_whose_data_outlives_it(charts: Charts) -> None:
    chart = charts.play("postgres")
    chart.ready("postgres-0-postgres")
    assert chart.cli.ok("exec", "postgres-0-postgres", "sh", "-c", "echo $POSTGRES_PASSWORD; echo kept "
                        ">/var/lib/postgresql/data/file") == "secret-of-postgres"  # fmt: skip
    assert "secret-of-postgres" not in shown(chart)
    chart.cli.ok("play", "--replace", str(chart.file))
    assert chart.cli.ok("exec", "postgres-0-postgres", "cat", "/var/lib/postgresql/data/file") == "kept"


def test_wordpress_and_its_database_in_one_pod(charts: Charts) -> None:
    chart = charts.play("wordpress")
    chart.ready("wordpress-web")
    for name, variable in (("mysql", "MYSQL_ROOT_PASSWORD"), ("web", "WORDPRESS_DB_PASSWORD")):
        assert chart.cli.ok("exec", f"wordpress-{name}", "sh", "-c", f"echo ${variable}") == "secret-of-wordpress"
    assert "secret-of-wordpress" not in shown(chart)


def test_work_that_is_done_once(charts: Charts) -> None:
    assert charts.play("job", "--wait").said.out.endswith("\n0 job-pi\n")


def test_work_that_fails_once_and_work_that_must_not_be_tried_again(charts: Charts) -> None:
    said = charts.play("job-failing", "--wait", code=3).said
    assert sorted(said.out.splitlines()[-2:]) == ["0 failing-again", "3 failing-once"]


def test_what_is_prepared_before_the_program(charts: Charts) -> None:
    chart = charts.play("init-containers")
    assert chart.ended("prepared-app").code == 0
    assert (chart.logs("prepared-permissions"), chart.logs("prepared-app")) == (["777"], ["v42"])


def test_a_shipper_of_logs_ends_after_the_program(charts: Charts) -> None:
    chart = charts.play("sidecar-logger")
    assert chart.ended("logged").reason == "stop"  # the whole pod
    assert chart.logs("logged-shipper") == ["line"]
    assert (chart.ended("logged-app").code, chart.ended("logged-shipper").by.policy) == (0, "last-member")


def test_three_probes_over_http(charts: Charts) -> None:
    chart = charts.play("probes")
    chart.ready("probed-app")
    assert [_status(chart, "probed-app", kind) for kind in ("Startup", "Readiness")] == ["healthy", "healthy"]
    until(lambda: "/ready" in chart.logs("probed-app"), "it is not asked")
    assert chart.logs("probed-app")[:2] == ["nginx ", "/healthz"]


def test_kubernetes_own_example_of_a_liveness_probe(charts: Charts) -> None:
    chart = charts.play("liveness-exec")
    with chart.cli.daemon.client() as client:
        until(lambda: client.inspect("liveness-app").run > 1, "no second run", 60)
        (first, *_) = client.exits(pb.ExitsRequest(id="liveness-app"))
    assert (first.reason, first.by.policy, first.decision) == ("health", "liveness-probe", "restart")


def test_what_a_pod_knows_of_itself(charts: Charts) -> None:
    chart = charts.play("downward-api")
    assert chart.ended("downward-app").code == 0
    assert chart.logs("downward-app") == ["downward default 250", 'app="downward"', 'tier="front"', "64"]


def test_three_of_one_kind(charts: Charts) -> None:
    chart = charts.play("deployment", warnings="ignored: the pods of a file are made at once")
    ids = chart.cli.ok("ps", "-q", "--filter", "label=app=front").split()
    assert len(ids) == 6 and chart.said.out.count("Pod:") == 3  # three pods of a pause container and one more


def test_work_as_a_job_that_is_begun_again_after_a_failure(charts: Charts) -> None:
    chart = charts.play("batch-job", warnings="ignored: the ended pod stays for exitctl why and logs")
    with chart.cli.daemon.client() as client:
        (first, last) = until(lambda: _of_two(client, "migrate-pod-app"), "no second run", 60)
    assert (first.code, first.decision, last.code, last.decision) == (9, "restart", 0, "ended")
    assert chart.logs("migrate-pod-app") == ["migrated"]
    assert chart.cli.field("migrate-pod-app", ".HostConfig.RestartPolicy.MaximumRetryCount") == "2"


def _of_two(client: Client, name: str) -> tuple[pb.Exit, ...]:
    """Both exits, once there are two."""
    exits = tuple(client.exits(pb.ExitsRequest(id=name)))
    return exits if len(exits) == 2 else ()


def test_one_on_each_node_of_which_there_is_one(charts: Charts) -> None:
    chart = charts.play("daemon-set")
    until(lambda: (chart.shared / "node/said").exists(), "nothing on the node")
    assert chart.cli.field("agent-pod-app", ".State.Status") == "running"
    assert chart.cli.ok("pods", "-q").count("\n") == 0  # one line


def test_as_little_as_a_program_needs(charts: Charts) -> None:
    chart = charts.play("security-context")
    assert chart.ended("confined-app").code == 0
    assert chart.logs("confined-app") == ["1000", "1000 2000", "read-only", "2000", "secret-of-confined"]
    assert "secret-of-confined" not in shown(chart)


def test_something_after_the_start_and_something_before_the_end(charts: Charts) -> None:
    chart = charts.play("hooks")
    until(lambda: chart.probes("hooked-app")["Started"], "its hook")
    chart.cli.ok("stop", "hooked-app")
    assert chart.logs("hooked-app") == ["started", "drained"]


def test_one_directory_of_several_sources(charts: Charts) -> None:
    chart = charts.play("projected")
    assert chart.ended("projected-app").code == 0
    assert chart.logs("projected-app") == ["blue", "secret-of-projected", "projected400"]
    assert "secret-of-projected" not in shown(chart)


def test_a_scratch_directory_in_memory_with_a_limit(charts: Charts) -> None:
    chart = charts.play("memory")
    assert chart.ended("memory-app").code == 0
    assert chart.logs("memory-app") == ["tmpfs", str(1 << 20)]


def test_work_that_may_take_two_seconds(charts: Charts) -> None:
    chart = charts.play("deadline")
    exit_ = chart.ended("late-app")
    assert (exit_.code, exit_.reason, exit_.by.policy, exit_.decision) == (5, "timeout", "active-deadline", "ended")
    chart.ended("late")


def test_variables_of_whole_maps_and_a_url_of_them(charts: Charts) -> None:
    chart = charts.play("env-from")
    assert chart.ended("envfrom-app").code == 0
    word = "secret-of-env-from"
    assert chart.logs("envfrom-app") == [f"pg://app:{word}@db.example:5432/ --password={word}"]
    assert word not in shown(chart)


def test_a_directory_of_the_machine(charts: Charts) -> None:
    chart = charts.play("host-path")
    assert chart.ended("hostpath-app").code == 0
    assert (chart.shared / "made/said").read_text() == "here\n"


def test_limits_that_hold(charts: Charts) -> None:
    chart = charts.play("resources")
    assert chart.cli.field("limited-app", ".HostConfig.Memory") == str(32 << 20)
    assert "/pause" in chart.cli.ok("exec", "limited-app", "cat", "/proc/1/cmdline")


def test_a_whole_chart_with_what_only_a_cluster_has(charts: Charts) -> None:
    chart = charts.play("whole-chart", warnings="ignored: a Service is for a cluster")
    chart.ready("chart-0-web", "chart-1-web")
    assert chart.said.err.count("ignored") == 3


def test_every_manifest_is_played_by_a_test() -> None:
    here = pathlib.Path(__file__).read_text()
    assert not [path.stem for path in MANIFESTS.glob("*.yaml") if f'play("{path.stem}"' not in here]


def _status(chart: Chart, name: str, kind: str) -> object:
    found = chart.probes(name)[kind]
    assert isinstance(found, dict)
    return found["Status"]

"""A configuration that changes under a running daemon, with containers that live through it."""

import glob
import json
import os
import pathlib
import signal
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.config.settings import CgroupDriver
from supervisor.engine.admission import uses_systemd
from supervisor.model.errors import Compacted, RuntimeFailed, RuntimeMissing, TimedOut
from tests.system import daemons, lives
from tests.system.daemons import Daemon, Left, left, remove_all, spec, stub, warm_up
from tests.system.exitctl import Cli
from tests.system.lives import word
from tests.system.runtimes import Wrapper
from tests.system.waits import until


class ConfigMap:
    """A configuration as Kubernetes mounts one: the file is a link through ..data, which is turned over as a whole."""

    def __init__(self, directory: pathlib.Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.file = directory / "config.toml"
        self.file.symlink_to("..data/config.toml")
        self._versions = 0
        self.write("")

    def write(self, text: str) -> None:
        self._versions += 1
        version = self.directory / f"..{self._versions}"
        version.mkdir()
        (version / "config.toml").write_text(text)
        (self.directory / "..data_tmp").symlink_to(version.name)
        (self.directory / "..data_tmp").rename(self.directory / "..data")


@pytest.fixture
def config(tmp_path: pathlib.Path) -> ConfigMap:
    return ConfigMap(tmp_path / "etc")


@pytest.fixture
def daemon(config: ConfigMap) -> Iterator[Daemon]:
    with daemons.daemon(extra=("--config", str(config.file), "--reconcile-seconds", "0.2")) as made:
        yield made


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as made:
        warm_up(made)
        before = left(daemon)
        yield made
    with daemon.client() as again:
        remove_all(again)
    until(lambda: no_more(left(daemon), before), f"{left(daemon)}, before: {before}")


def no_more(now: Left, before: Left) -> bool:
    """Of the daemon's own descriptors a restarted one has its own count."""
    names = set(Left.__dataclass_fields__) - {"descriptors"}
    return all(getattr(now, name) <= getattr(before, name) for name in names)


def in_force(client: Client) -> dict[str, tuple[str, str]]:
    return {each.name: (each.value, each.origin) for each in client.info().configuration}


def turn(config: ConfigMap, client: Client, text: str, name: str, value: str) -> None:
    """The file's next version, and the wait until it is in force."""
    config.write(text)
    until(lambda: in_force(client).get(name, ("", ""))[0] == value, f"{name} is not {value}: {in_force(client)}")


def wrapper(directory: pathlib.Path) -> Wrapper:
    """A runtime that notes its words, one line a command."""
    directory.mkdir()
    made = Wrapper.make(directory)
    for verb in ("create", "start", "delete", "pause", "resume"):
        made.on(verb, f'echo "$@" >>{directory}/words')
    return made


def words(made: Wrapper) -> list[str]:
    path = made.path.with_name("words")
    return path.read_text().splitlines() if path.exists() else []


def test_info_shows_every_value_and_where_it_is_from(daemon: Daemon, config: ConfigMap, client: Client) -> None:
    turn(config, client, "# mine\ncgroup_driver = 'cgroupfs'\n", "cgroup_driver", "cgroupfs")
    found = in_force(client)
    assert found["root"] == (str(daemon.root), "flag")
    assert found["limits.reconcile_seconds"] == ("0.2", "flag")
    assert found["cgroup_driver"] == ("cgroupfs", f"{config.file}:2")
    assert found["retention.exit_seconds"] == ("300", "default")
    shown = json.loads(Cli(daemon).ok("info", "--format", "json"))
    assert {"Name": "cgroup_driver", "Value": "cgroupfs", "Origin": f"{config.file}:2"} in shown["Configuration"]
    assert f"{config.file}:2" in Cli(daemon).ok("info")


def test_a_flag_goes_before_the_file_and_before_its_next_version(config: ConfigMap) -> None:
    flags = ("--cgroup-driver", "cgroupfs", "--runtime-seconds", "7")
    with daemons.daemon(extra=("--config", str(config.file), *flags)) as made, made.client() as client:
        text = "cgroup_driver = 'systemd'\n[limits]\nruntime_seconds = 9\nscratch_mib = 7\n"
        turn(config, client, text, "limits.scratch_mib", "7")
        found = in_force(client)
    assert (found["cgroup_driver"], found["limits.runtime_seconds"]) == (("cgroupfs", "flag"), ("7", "flag"))


def test_a_container_keeps_the_runtime_it_was_made_with_over_reloads_and_restarts(
    daemon: Daemon, config: ConfigMap, client: Client, tmp_path: pathlib.Path
) -> None:
    one, two = wrapper(tmp_path / "one"), wrapper(tmp_path / "two")
    first = f"[runtimes.mine]\npath = '{one.name}'\noptions = ['--debug']\n"
    turn(config, client, first, "runtimes.mine.path", one.name)
    old = lives.up(client, runtime="mine").id
    second = f"default_runtime = 'mine'\n[runtimes.mine]\npath = '{two.name}'\n"
    turn(config, client, second, "runtimes.mine.path", two.name)
    new = lives.up(client).id
    daemon.restart()
    with daemon.client() as again:
        for container in (old, new):
            again.pause(container)
            again.resume(container)
            again.kill(container, "KILL")
            assert word(lives.last_exit(again, container)) == "signaled 9"
            again.start(container)
            again.remove(container, force=True)
    for made, container, options in ((one, old, ["--debug", "--root"]), (two, new, ["--root"])):
        said = [line.split() for line in words(made)]
        assert {line[: len(options)] == options for line in said} == {True}
        assert all(container in line for line in said)
        assert {"create", "start", "pause", "resume", "delete"} <= {each for line in said for each in line}


def test_a_broken_file_changes_nothing_and_is_reported_with_its_lines(
    daemon: Daemon, config: ConfigMap, client: Client
) -> None:
    turn(config, client, "[limits]\nscratch_mib = 7\n", "limits.scratch_mib", "7")
    before = in_force(client)
    config.write("[limits]\nscratch_mib = 'x'\nruntime_secods = 3\n")
    until(lambda: f"{config.file}:3: limits.runtime_secods" in daemon.log.read_text(), "the second error")
    assert f"{config.file}:2: limits.scratch_mib: must be a whole number" in daemon.log.read_text()
    assert in_force(client) == before
    assert word(lives.run(client, "sh", "-c", "exit 7")[1]) == "exited 7"
    os.kill(daemon.pid, signal.SIGHUP)
    until(lambda: daemon.log.read_text().count(f"{config.file}:3: ") == 2, "the errors again")
    turn(config, client, "[limits]\nscratch_mib = 8\n", "limits.scratch_mib", "8")


def test_names_that_are_no_utf8_and_storms_of_others_do_not_stop_the_following(
    config: ConfigMap, client: Client
) -> None:
    for number in range(2000):
        (config.directory / f"other{number % 10}").write_text("x")
    (config.directory / os.fsdecode(b"\xff\xfe")).write_text("x")
    turn(config, client, "default_runtime = 'crun'\n", "default_runtime", "crun")


def test_state_and_root_stay_where_they_are(daemon: Daemon, config: ConfigMap, client: Client) -> None:
    daemon.extra = ("--config", str(config.file))
    turn(config, client, "root = '/elsewhere'\n[limits]\nimage_gib = 1\nscratch_mib = 9\n", "limits.scratch_mib", "9")
    assert in_force(client)["root"] == (str(daemon.root), "flag")
    assert in_force(client)["limits.image_gib"] == ("64", "default")
    assert "limits.image_gib cannot change while exitd runs, 64 stays in force" in daemon.log.read_text()


def test_the_scratch_layer_of_the_next_container_is_as_large_as_the_file_says(
    config: ConfigMap, client: Client
) -> None:
    fill = ("sh", "-c", "head -c 3000000 /dev/zero >/scratch-test")
    for size, code in ((1, 1), (8, 0)):
        turn(config, client, f"[limits]\nscratch_mib = {size}\n", "limits.scratch_mib", str(size))
        assert lives.run(client, *fill, storage="tmpfs")[1].code == code


def test_a_lower_limit_of_a_create_holds_from_the_reload_on(
    config: ConfigMap, client: Client, tmp_path: pathlib.Path
) -> None:
    slow = wrapper(tmp_path / "slow")
    slow.on("create", "exec sleep 1000")
    turn(config, client, "[limits]\ncreate_seconds = 0.5\n", "limits.create_seconds", "0.5")
    with pytest.raises(TimedOut, match=r"0\.5 s"):
        client.create(spec("true", runtime=slow.name))


def test_fewer_events_are_kept_from_the_reload_on(config: ConfigMap, client: Client) -> None:
    for _ in range(3):
        client.remove(lives.run(client, "true")[0], force=False)
    turn(config, client, "[retention]\nevents = 2\n", "retention.events", "2")

    def compacted() -> bool:
        try:
            list(client.events(pb.EventsRequest(from_seq=1, no_follow=True)))
        except Compacted:
            return True
        return False

    until(compacted, "the old events are still there")


def test_only_what_the_runtimes_list_allows_reaches_its_configuration(
    config: ConfigMap, client: Client, tmp_path: pathlib.Path
) -> None:
    made = wrapper(tmp_path / "one")
    made.on("create", f'for w; do [ "$p" = --bundle ] && cp $w/config.json {tmp_path}/seen; p=$w; done')
    listed = f"[runtimes.mine]\npath = '{made.name}'\ncontainer_annotations = ['com.example.*']\n"
    turn(config, client, f"{listed}pod_annotations = ['pod']\n", "runtimes.mine.path", made.name)
    asked = {"com.example.a": "1", "com.other": "2", "pod": "3"}
    client.create(spec("true", runtime="mine", annotations=asked))
    assert json.loads((tmp_path / "seen").read_text())["annotations"] == {"com.example.a": "1"}
    client.create(spec("true", runtime=made.name, annotations=asked))
    assert json.loads((tmp_path / "seen").read_text())["annotations"] == {}


def test_a_shim_v2_runtime_that_is_not_installed_is_refused_by_its_program(config: ConfigMap, client: Client) -> None:
    text = "[runtimes.vm]\nruntime_type = 'io.containerd.nosuchvm.v2'\nhandlers = ['vm-qemu']\n"
    turn(config, client, text, "runtimes.vm.runtime_type", "io.containerd.nosuchvm.v2")
    for name in ("vm", "vm-qemu", "io.containerd.nosuchvm.v2"):
        with pytest.raises(RuntimeMissing, match="containerd-shim-nosuchvm-v2"):
            client.create(spec("true", runtime=name))
    assert list(client.list(all_of_them=True)) == []


# -- the systemd driver

SCOPE_MAKER = """
words=
for w; do
    [ "$w" = --systemd-cgroup ] || words="$words $w"
    [ "$p" = --bundle ] && bundle=$w
    p=$w
done
id=$w
mkdir -p {directory}/$id
sed "s|exitd.slice:exitd:$id|/exitd.slice/exitd-$id.scope|" $bundle/config.json >{directory}/$id/config.json
exec runc $(echo "$words" | sed "s|--bundle $bundle|--bundle {directory}/$id|")
"""


@pytest.fixture
def systemd(config: ConfigMap, client: Client, tmp_path: pathlib.Path) -> Iterator[Wrapper]:
    """A runtime that notes what it is told and then makes the scope's directories itself, as systemd would."""
    made = wrapper(tmp_path / "systemd")
    noting = made.path.with_name("create").read_text()
    made.on("create", noting + SCOPE_MAKER.format(directory=tmp_path))
    for verb in ("start", "delete", "pause", "resume"):
        without = """; for w; do shift; [ "$w" = --systemd-cgroup ] || set -- "$@" "$w"; done"""
        made.on(verb, made.path.with_name(verb).read_text() + without)
    text = f"cgroup_driver = 'systemd'\ndefault_runtime = 'mine'\n[runtimes.mine]\npath = '{made.name}'\n"
    turn(config, client, text, "cgroup_driver", "systemd")
    yield made
    for path in (*glob.glob("/sys/fs/cgroup/*/exitd.slice"), *glob.glob("/sys/fs/cgroup/exitd.slice")):
        os.rmdir(path)


def scopes(container: str) -> list[str]:
    """v1 and hybrid, v2."""
    return [
        path for level in ("*/", "") for path in glob.glob(f"/sys/fs/cgroup/{level}exitd.slice/exitd-{container}.scope")
    ]


def test_a_scope_of_systemd_is_found_counted_and_cleared_away(daemon: Daemon, client: Client, systemd: Wrapper) -> None:
    container = lives.up(client, "sh", "-c", "sleep 1000 & sleep 1000 & wait").id
    assert scopes(container)
    with stub(daemon) as api:
        until(lambda: len(api.Pids(pb.PidsRequest(id=container)).pids) == 3, "the scope's processes")
    client.pause(container)
    client.resume(container)
    client.kill(container, "KILL", everyone=True)
    assert word(lives.last_exit(client, container)) == "signaled 9"
    client.remove(container, force=True)
    assert scopes(container) == []
    assert len(words(systemd)) >= 4
    assert all("--systemd-cgroup" in line.split() for line in words(systemd))


def test_memory_kills_in_a_scope_are_counted(client: Client, systemd: Wrapper) -> None:
    script = "python3 -c 'x = bytearray(200 << 20)'; exit 3"
    container, exit_ = lives.run(client, "sh", "-c", script, memory_bytes=64 << 20)
    assert (word(exit_), exit_.oom.kills) == ("exited 3", 1)
    until(lambda: not scopes(container), "the scope is still there")


def test_a_container_keeps_its_driver_when_the_configuration_turns(
    config: ConfigMap, client: Client, systemd: Wrapper
) -> None:
    old = lives.up(client).id
    turn(config, client, "cgroup_driver = 'cgroupfs'\n", "cgroup_driver", "cgroupfs")
    new = lives.up(client).id
    assert (len(scopes(old)) > 0, scopes(new)) == (True, [])
    client.stop(old, 0)
    client.start(old)
    assert scopes(old)
    client.remove(old, force=True)
    assert scopes(old) == []


def test_runc_itself_is_told_to_use_systemd(config: ConfigMap, client: Client) -> None:
    """Where systemd is not init, runc says so in its own words; where it is, there is a scope."""
    turn(config, client, "cgroup_driver = 'systemd'\n", "cgroup_driver", "systemd")
    if uses_systemd(CgroupDriver.AUTO):
        container = lives.up(client).id
        assert scopes(container)
        client.remove(container, force=True)
        assert scopes(container) == []
    else:
        with pytest.raises(RuntimeFailed, match="systemd"):
            client.create(spec("true"))

"""The Python client beside a real exitd, one for all: the blocking client first, then asyncio's."""

import asyncio
import io
import os
import pathlib
import tarfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from exitd_client import (
    AsyncClient,
    BadRequest,
    Client,
    CommandNotFound,
    ExitdError,
    Health,
    Hook,
    Hooks,
    Log,
    Mount,
    MountFile,
    NameTaken,
    NoSuchContainer,
    NoSuchNetwork,
    NoSuchPath,
    NoSuchWatch,
    OutputTooLong,
    PodSpec,
    Probe,
    Probes,
    Rights,
    Secrets,
    ShuttingDown,
    TimedOut,
    Ulimit,
    Unreachable,
    WrongState,
)
from tests.system import images
from tests.system.daemons import Daemon
from tests.system.daemons import daemon as running_daemon
from tests.system.waits import until

pytestmark = pytest.mark.system
LIMIT = 120.0


NETWORK = '{"cniVersion": "1.0.0", "name": "here", "plugins": [{"type": "bridge"}]}'


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """It has a network of which it reads the file alone: no container is in it."""
    base = tmp_path_factory.mktemp("configuration")
    networks = base / "net.d"
    networks.mkdir()
    (networks / "10-here.conflist").write_text(NETWORK)
    (base / "exitd.toml").write_text(f'[network]\nconf_dir = "{networks}"\n')
    with running_daemon(extra=("--config", str(base / "exitd.toml")), grpc=True) as daemon:
        yield daemon


@pytest.fixture
def exitd(up: Daemon) -> Iterator[Client]:
    with Client(f"{up.state}/exitd.sock") as client:
        yield client
        for each in client.ps(all=True):
            client.rm(each.id, force=True)


def test_a_run_and_its_end_are_typed_values(exitd: Client) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    made = exitd.run("", ["sh", "-c", "exit 7"], name="web", rootfs="/", labels={"tier": "front"}, timeout=LIMIT)
    assert (made.name, made.run, made.labels, made.spec["rootfs"]) == ("web", 1, {"tier": "front"}, "/")
    end = exitd.wait("web", timeout=LIMIT)
    assert (end.kind, end.code, end.signal, end.reason, end.source) == ("exited", 7, None, "self", "record")
    assert (end.container, end.name, end.cause, end.is_success) == (made.id, "web", "", False)
    assert end.started_at is not None and before < end.started_at <= end.at
    assert abs(end.at_ns / 1e9 - end.at.timestamp()) < 1e-3
    assert exitd.inspect("web").exit == end
    assert [each.name for each in exitd.ps()] == []
    assert [each.id for each in exitd.ps(all=True, filters=["label=tier=front"])] == [made.id]


def test_who_asked_for_an_end_is_this_process(exitd: Client) -> None:
    exitd.run(args=["sleep", "1000"], name="asked", rootfs="/")
    exitd.kill("asked")
    end = exitd.wait("asked", timeout=LIMIT)
    assert (end.kind, end.code, end.signal, end.reason) == ("signaled", None, 9, "kill")
    assert end.by is not None and (end.by.uid, end.by.pid) == (os.getuid(), os.getpid())


def test_stop_restart_pause_and_rm_do_what_they_say(exitd: Client) -> None:
    made = exitd.create(args=["sleep", "1000"], name="life", rootfs="/", stop_signal="SIGKILL", stop_timeout_seconds=1)
    assert made.phase == "created"
    assert exitd.start("life").phase == "running"
    exitd.pause("life")
    assert exitd.inspect("life").phase == "paused"
    exitd.resume("life")
    assert exitd.restart("life").run == 2
    assert exitd.stop("life", grace_seconds=1).phase == "exited"
    assert exitd.wait("life", run=1, timeout=LIMIT).reason == "stop"
    exitd.rm("life")
    with pytest.raises(NoSuchContainer):
        exitd.inspect("life")
    assert [each.run for each in exitd.exits(container=made.id)] == [1, 2]
    assert exitd.wait(made.id, timeout=LIMIT).run == 2  # of the ledger


def test_what_goes_wrong_has_its_own_class_and_leaves_nothing(exitd: Client) -> None:
    exitd.create(args=["true"], name="mine", rootfs="/")
    with pytest.raises(NameTaken):
        exitd.create(args=["true"], name="mine", rootfs="/")
    with pytest.raises(CommandNotFound) as missing:
        exitd.run(args=["/no/such"], name="gone", rootfs="/", auto_remove=True)
    assert missing.value.reason == "COMMAND_NOT_FOUND"
    with pytest.raises(BadRequest, match="SIGNOPE"):
        exitd.create(args=["true"], rootfs="/", stop_signal="SIGNOPE")
    with pytest.raises(TimedOut):
        exitd.wait("mine", timeout=0.2)
    with pytest.raises(NoSuchContainer) as absent:
        exitd.kill("nobody")
    assert isinstance(absent.value, ExitdError)
    assert [each.name for each in exitd.ps(all=True)] == ["mine"]


def test_an_exec_brings_its_output_and_its_end(exitd: Client) -> None:
    exitd.run(args=["sleep", "1000"], name="box", rootfs="/")
    done = exitd.exec("box", ["sh", "-c", "wc -c; echo $WORD >&2; exit 3"], input=b"x" * 200_000, env={"WORD": "bad"})
    assert (done.exit.code, done.stdout, done.stderr) == (3, b"200000\n", b"bad\n")
    late = exitd.exec("box", ["sleep", "1000"], timeout=0.2)
    assert (late.exit.reason, late.exit.signal) == ("timeout", 9)
    with pytest.raises(OutputTooLong):
        exitd.exec("box", ["sh", "-c", "yes | head -c 100000; sleep 1000"], most_bytes=1000)
    until(lambda: exitd.inspect("box").execs == (), "the exec that wrote too much lives on")


def test_logs_come_in_parts_that_name_their_stream(exitd: Client) -> None:
    exitd.run(args=["sh", "-c", "echo out; echo err >&2"], name="says", rootfs="/", log=Log(driver="json-file"))
    parts = list(exitd.logs("says", follow=True, timeout=LIMIT))
    assert {each.stream: each.data for each in parts} == {"stdout": b"out\n", "stderr": b"err\n"}
    assert b"".join(each.data for each in exitd.logs("says", tail=1)) in (b"out\n", b"err\n")


def test_parts_of_a_spec_arrive(exitd: Client) -> None:
    rights = Rights(ulimits=[Ulimit(name="nofile", soft=100, hard=200)], cap_drop=["ALL"])
    exitd.run(args=["sh", "-c", "ulimit -n; echo $A"], name="parts", rootfs="/", rights=rights, env={"A": "b=c"})
    exitd.wait("parts", timeout=LIMIT)
    assert b"".join(each.data for each in exitd.logs("parts")) == b"100\nb=c\n"


def test_a_name_and_limits_are_changed_and_what_is_used_is_counted(exitd: Client) -> None:
    made = exitd.run(args=["sleep", "1000"], name="old", rootfs="/", memory_bytes=512 << 20)
    exitd.create(args=["true"], name="taken", rootfs="/")
    with pytest.raises(NameTaken):
        exitd.rename("old", "taken")
    exitd.rename("old", "new")
    exitd.update("new", memory_bytes=256 << 20, pids_limit=50, restart="always")
    found = exitd.inspect("new")
    assert (found.id, found.spec["memory_bytes"], found.spec["restart"]) == (made.id, str(256 << 20), "always")
    (used,) = exitd.stats()  # of those that run
    assert (used.id, used.name, used.measured, used.pids_limit) == (made.id, "new", True, 50)
    assert (used.memory_limit_bytes, used.pids, used.read_boot_ns > 0) == (256 << 20, 1, True)
    assert used.network is not None and used.network.sent_bytes == 0
    assert [(each.name, each.measured) for each in exitd.stats("taken", "new")] == [("taken", False), ("new", True)]
    with pytest.raises(BadRequest):
        exitd.update("new", restart="now and then")


def test_probes_hooks_and_secrets_arrive_and_networks_are_listed(exitd: Client) -> None:
    good = Probe(args=["grep", "-qx", "of.a.file", "/run/word/key"], interval_ns=100_000_000, failures=100)
    exitd.run(
        args=["sh", "-c", "echo $KEY; exec sleep 1000"],
        name="probed",
        rootfs="/",
        probes=Probes(startup=good, readiness=Probe(args=["false"], interval_ns=100_000_000, failures=1)),
        hooks=Hooks(post_start=Hook(args=["true"])),
        secrets=Secrets(env={"KEY": "of-the-environment"}),
        mounts=[Mount(destination="/run/word", secret=True, files=[MountFile(path="key", content=b"of-a-file")])],
    )

    def are_known() -> bool:
        probes = exitd.inspect("probed").probes
        return probes is not None and probes.started and (probes.startup, probes.readiness) == ("healthy", "unhealthy")

    until(are_known, "the probes have no results")
    found = exitd.inspect("probed")
    assert found.probes is not None and not found.probes.ready
    assert "of-a-file" not in repr(found) and "of-the-environment" not in repr(found)

    def has_written() -> bool:
        return b"".join(each.data for each in exitd.logs("probed", tail=1)) == b"of-the-environment\n"

    until(has_written, "what it wrote is not in its log")
    assert (found.networks, found.network_hint, found.of_containerd) == ((), "", False)
    (network,) = exitd.networks()
    assert (network.name, network.plugins, network.error, network.containers) == ("here", ("bridge",), "", ())
    with pytest.raises(NoSuchNetwork):
        exitd.create(args=["true"], rootfs="/", network="elsewhere")


def tar_of(name: str, content: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def files_in(parts: Iterator[bytes]) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as tar:
        return {each.name: file.read() for each in tar if (file := tar.extractfile(each)) is not None}


def test_files_images_and_what_a_container_is_asked(exitd: Client, tmp_path: pathlib.Path) -> None:
    tar = tmp_path / "root.tar"
    tar.write_bytes(images.base_layer())
    image = exitd.import_image(str(tar), "small")
    exitd.tag("small", "other")
    details = exitd.inspect_image("other")
    assert (details.image.id, len(details.layers), details.image.names) == (
        image.id,
        1,
        ("other:latest", "small:latest"),
    )
    exitd.create("small", ["/bin/true"], name="box")
    assert exitd.copy_to("box", "/cache", [tar_of("new", b"word")]).entries == 1
    assert exitd.stat_path("box", "/cache/new").size_bytes == 4
    assert files_in(exitd.copy_from("box", "/cache/new")) == {"new": b"word"}
    assert b"base\n" in files_in(exitd.export("box")).values()
    found = [each for part in exitd.changes("box") for each in part]
    assert (b"/cache/new", "added") in [(each.path, each.kind) for each in found]
    with pytest.raises(NoSuchPath):
        exitd.stat_path("box", "/absent")
    with pytest.raises(ZeroDivisionError):
        exitd.copy_to("box", "/cache", (bytes(1 // 0) for _ in "1"))
    made = exitd.commit("box", "made", changes=["CMD x"], message="m", author="a")
    assert made.id in exitd.prune_images(made.id, all=True).ids
    loaded = tmp_path / "saved.tar"
    loaded.write_bytes(b"".join(exitd.save("small")))
    (again,) = exitd.load(f"docker-archive:{loaded}", name="again")
    assert again.names == ("again:latest",)
    assert exitd.untag("again") == ("again:latest",)
    exitd.rm("box")
    exitd.rm_image(again.id)
    assert exitd.rm_image("other").ids == () and exitd.rm_image("small").ids == (image.id,)
    exitd.run(args=["cat"], name="in", rootfs="/", stdin=True, health=Health(args=["true"], interval_ns=10**13))
    assert len(exitd.pids("in")) == 1
    assert (exitd.healthcheck("in").code, exitd.inspect("in").health) == (0, "healthy")
    exitd.reopen_log("in")
    with pytest.raises(WrongState):
        exitd.resize("in", 10, 10)
    exitd.close_stdin("in")
    assert exitd.wait("in", timeout=LIMIT).code == 0


def test_pods_volumes_networks_watches_and_the_daemon_itself(up: Daemon, exitd: Client) -> None:
    pod = exitd.run_pod(PodSpec(name="shop", namespace="x", exit_policy="stop"), labels={"a": "b"})
    assert (pod.name, pod.namespace, pod.state, pod.spec["exit_policy"]) == ("shop", "x", "SANDBOX_READY", "stop")
    member = exitd.run(args=["sleep", "1000"], rootfs="/", sandbox=pod.id, stop_signal="SIGKILL")
    assert [each.id for each in exitd.inspect_pod(pod.id).members] == [member.id]
    assert [each.id for each in exitd.pods(filters=["label=a=b"])] == [pod.id]
    assert exitd.stop_pod(pod.id, grace_seconds=1).state == "SANDBOX_NOTREADY"
    exitd.rm_pod(pod.id)
    assert exitd.pods() == ()
    volume = exitd.create_volume("data")
    assert [(each.name, each.path) for each in exitd.volumes()] == [("data", volume.path)]
    exitd.rm_volume("data")
    assert exitd.volumes() == ()
    assert exitd.stuck_networks() == ()
    pruned = exitd.prune_networks()
    assert (pruned.taken_down, pruned.given_up) == ((), ())
    watch = exitd.watch(pid=os.getpid())
    assert (watch.kind, watch.target) == ("pid", str(os.getpid()))
    assert [each.target for each in exitd.watches()] == [watch.target]
    assert exitd.end_watch(watch.target).target == watch.target
    with pytest.raises(NoSuchWatch):
        exitd.end_watch(watch.target)
    info = exitd.info()
    assert (info.root, info.pid) == (str(up.root), up.pid)
    assert "exitd_" in exitd.metrics()
    made = exitd.create(args=["true"], rootfs="/")
    usage = exitd.disk_usage(made.id, images=True)
    assert [each.id for each in usage.containers] == [made.id] and usage.images is not None


def test_a_host_that_goes_down_is_said_and_nothing_is_begun_then() -> None:
    with running_daemon(grpc=True) as daemon, Client(f"{daemon.state}/exitd.sock") as exitd:
        made = exitd.run(args=["sleep", "1000"], rootfs="/", stop_signal="SIGKILL")
        assert exitd.shut_down_node(60).ended == (made.id,)
        with pytest.raises(ShuttingDown):
            exitd.start(made.id)


def test_events_and_a_wait_go_on_over_a_restart_of_exitd(up: Daemon, exitd: Client) -> None:
    exitd.run(args=["sleep", "1000"], name="lives", rootfs="/")
    heard = []
    events = exitd.events(filters=["name=lives"], timeout=LIMIT)
    exitd.pause("lives")
    heard.append(next(events))
    ends = []
    waiting = threading.Thread(target=lambda: ends.append(exitd.wait("lives", timeout=LIMIT)))
    waiting.start()
    up.restart()
    with Client(f"{up.state}/exitd.sock") as other:
        until(lambda: not other.inspect("lives").recovering, "exitd still recovers")
        other.resume("lives")
        other.kill("lives", "SIGKILL")
    waiting.join(LIMIT)
    assert [(each.signal, each.reason, each.run) for each in ends] == [(9, "kill", 1)]
    while heard[-1].type != "exit":
        heard.append(next(events))
    assert [each.seq for each in heard] == sorted({each.seq for each in heard})
    assert {"pause", "resume", "kill", "exit"} <= {each.type for each in heard}
    first = heard[0].seq
    again = list(exitd.events(since=first, filters=["name=lives"], follow=False))
    assert again[: len(heard)] == heard
    assert exitd.version().api  # the same client goes on, introduced anew


WRITES = "i=0; while [ $i -lt 4000 ]; do echo line-$i; i=$((i + 1)); [ $((i % 500)) -ne 0 ] || read go; done"
WRITTEN = b"".join(b"line-%d\n" % number for number in range(4000))


def test_logs_that_are_followed_go_on_over_restarts_of_exitd_to_the_byte(up: Daemon, tmp_path: pathlib.Path) -> None:
    """Both clients follow; the container writes its next lines when exitd is dead, and when it is back."""
    os.mkfifo(tmp_path / "go")
    line = os.open(tmp_path / "go", os.O_RDWR)
    path, shown = f"{up.state}/exitd.sock", [b"", b""]

    def follow() -> None:
        with Client(path) as client:
            for part in client.logs("writes", follow=True, timeout=LIMIT):
                shown[0] += part.data

    async def follow_too() -> None:
        async with AsyncClient(path) as client:
            async for part in client.logs("writes", follow=True, timeout=LIMIT):
                shown[1] += part.data

    def is_shown(lines: int) -> bool:
        return all(each.count(b"\n") == lines for each in shown)

    with Client(path) as exitd:
        mounts = [Mount(source=str(tmp_path), destination="/mnt")]
        exitd.run(args=["sh", "-c", f"exec </mnt/go; {WRITES}"], name="writes", rootfs="/", mounts=mounts)
        readers = [threading.Thread(target=follow), threading.Thread(target=lambda: asyncio.run(follow_too()))]
        for each in readers:
            each.start()
        for round in range(1, 8):
            until(lambda: is_shown(500 * round), f"not all is shown: {[len(each) for each in shown]}")  # noqa: B023
            if round % 3 == 0:
                up.kill()
                os.write(line, b"\n")
                up.start()
            else:
                os.write(line, b"\n")
        os.write(line, b"\n")
        for each in readers:
            each.join(LIMIT)
        assert shown == [WRITTEN, WRITTEN]
        assert exitd.wait("writes", timeout=LIMIT).code is not None
    os.close(line)


def test_no_exitd_is_named_and_takes_no_time(tmp_path: pathlib.Path) -> None:
    with Client(f"{tmp_path}/none.sock", reconnect_seconds=0) as nobody, pytest.raises(Unreachable):
        nobody.wait("web", timeout=LIMIT)


async def _life(path: str) -> None:
    async with AsyncClient(path) as exitd:
        made = await exitd.run("", ["sh", "-c", "exit 7"], name="web", rootfs="/", timeout=LIMIT)
        end = await exitd.wait("web", timeout=LIMIT)
        assert (end.code, end.container, end.is_success) == (7, made.id, False)
        ends = await asyncio.gather(*(_one(exitd, code) for code in range(5)))
        assert ends == list(range(5))
        await exitd.run(args=["sleep", "1000"], name="box", rootfs="/")
        done = await exitd.exec("box", ["cat"], input=b"hello")
        assert (done.stdout, done.exit.is_success) == (b"hello", True)
        waiting = asyncio.create_task(exitd.wait("box"))
        await exitd.inspect("box")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        seen = [each async for each in exitd.events(since=0, follow=False) if each.type == "exit"]
        assert [each.exit.code for each in seen if each.name == "web" and each.exit is not None][-1] == 7
        with pytest.raises(NoSuchContainer):
            await exitd.stop("nobody")
        assert [each async for each in exitd.logs("box", follow=False)] == []
        await exitd.rename("box", "chest")
        await exitd.rename("chest", "box")
        await exitd.update("box", memory_bytes=256 << 20)
        assert [each.memory_limit_bytes for each in await exitd.stats("box")] == [256 << 20]
        assert [each.name for each in await exitd.networks()] == ["here"]
        await exitd.stop("box", grace_seconds=0)
        assert (await exitd.wait("box")).by is not None
        for each in await exitd.ps(all=True):
            await exitd.rm(each.id)
        assert await exitd.images() == ()
        await _holdings(exitd)


async def _holdings(exitd: AsyncClient) -> None:
    made = await exitd.create(args=["true"], rootfs="/")
    assert (await exitd.copy_to(made.id, "/root", tar_of("new", b"word"))).entries == 1
    assert files_in(iter([part async for part in exitd.copy_from(made.id, "/root/new")])) == {"new": b"word"}
    with pytest.raises(ZeroDivisionError):
        await exitd.copy_to(made.id, "/root", (bytes(1 // 0) for _ in "1"))
    pod = await exitd.run_pod(PodSpec(name="shop"))
    assert (await exitd.stop_pod(pod.id, grace_seconds=1)).state == "SANDBOX_NOTREADY"
    await exitd.rm_pod(pod.id)
    await exitd.rm(made.id)
    assert (await exitd.prune_networks()).given_up == ()


async def _one(exitd: AsyncClient, code: int) -> int | None:
    made = await exitd.run(args=["sh", "-c", f"exit {code}"], rootfs="/")
    return (await exitd.wait(made.id)).code


def test_asyncio_has_the_same_life(up: Daemon) -> None:
    asyncio.run(asyncio.wait_for(_life(f"{up.state}/exitd.sock"), LIMIT))

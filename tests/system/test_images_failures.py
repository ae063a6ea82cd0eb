"""What goes wrong with images: hostile layers, full disks, silent registries, clients that go away. All of it has a
name, and nothing stays behind."""

import os
import pathlib
import signal
import socket
import stat
import subprocess
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from supervisor.api.client import Unreachable
from supervisor.model.errors import BadImage, BadRequest, ImageStoreFailed, ShuttingDown
from tests.supervisor.images.building import Made, entry, folder, hard, link, tar
from tests.system import images, lives, oracle
from tests.system.daemons import Daemon, directory
from tests.system.exitctl import Cli
from tests.system.images import check, check_store, on, small
from tests.system.processes import commands, processes_of
from tests.system.waits import LIMIT_SECONDS, until

pytestmark = pytest.mark.usefixtures("no_image_left")


@pytest.fixture(scope="module")
def daemon(shelf: pathlib.Path, registry: images.Registry) -> Iterator[Daemon]:
    with oracle.warm_daemon(environment=images.plain_http(shelf, registry)) as made:
        yield made


OUT = f"exitd-test-escaped-{os.getpid()}"
HOSTILE = {
    "a name that leads out": (tar((f"../../{OUT}", b"x")), f"../../{OUT}"),
    "an absolute name": (tar((f"/{OUT}", b"x")), f"/{OUT}"),
    "through a link": (tar(link("way", "/tmp"), (f"way/{OUT}", b"x")), f"way/{OUT}"),
    "a hard link out": (tar(hard("mine", "../../../index.json")), "mine"),
    "a whiteout of what is above": (tar((".wh...", b"")), ".wh..."),
    "a torn tar": (tar(("whole", b"x" * 5000))[:2000], "whole"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_layer_is_refused_by_name_and_touches_nothing(
    daemon: Daemon, tmp_path: pathlib.Path, what: str
) -> None:
    layer, name = HOSTILE[what]
    images.layout(tmp_path / "l", bad=Made([small().layers[0], layer]))
    cli = Cli(daemon)
    for said in (cli("image", "load", f"{tmp_path}/l"), cli("run", f"oci:{tmp_path}/l:bad", "x")):
        assert said.code == 125 and said.out == ""
        assert name in said.err and "blobs/sha256/" in said.err
    assert cli.ok("image", "ls", "-q") == ""
    assert not os.path.lexists(f"/{OUT}") and not os.path.lexists(f"/tmp/{OUT}")
    assert not list(daemon.base.rglob(OUT))
    with daemon.client() as client:
        check_store(daemon, client)


def test_a_device_node_of_a_layer_reaches_no_container(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    disk = entry("disk", tarfile.BLKTYPE, devmajor=8, mode=0o666)
    zero = entry("zero", tarfile.CHRTYPE, devmajor=1, devminor=5, mode=0o666)
    images.layout(tmp_path / "l", t=Made([images.base_layer(), tar(disk, zero, ("after", b""))]))
    said = Cli(daemon)("run", "--rm", f"oci:{tmp_path}/l", "/bin/sh", "-c", "ls -d /disk /zero; ls /after")
    assert said.out == "/after\n"
    kinds = {stat.S_IFMT(path.lstat().st_mode) for path in (daemon.root / "images/layers").rglob("*")}
    assert stat.S_IFBLK not in kinds


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"User": "nobody-here"}, "no user 'nobody-here'"),
        ({"StopSignal": "SIGNONE"}, "config.StopSignal"),
        ({"Env": ["A"]}, "config.Env[0]"),
        ({"Entrypoint": []}, "which command?"),
        ({"Entrypoint": ["/nope"]}, "/nope"),
    ],
)
def test_a_configuration_that_cannot_run_is_reported_and_holds_nothing(
    daemon: Daemon, tmp_path: pathlib.Path, config: dict[str, object], words: str
) -> None:
    made = small()
    images.layout(tmp_path / "l", bad=Made(made.layers, {**made.process, **config}))
    said = Cli(daemon)("run", f"oci:{tmp_path}/l")
    assert said.code in (125, 127) and words in said.err
    with daemon.client() as client:
        until(lambda: not images.holds(daemon), "something is held")
        check_store(daemon, client)


def test_an_image_that_no_list_could_show_is_refused_by_its_field(tmp_path: pathlib.Path, daemon: Daemon) -> None:
    check = {"Test": ["CMD", "true"], "Retries": 2**40}
    bad: list[tuple[dict[str, object], str]] = [
        ({"Labels": {"a\ud800": "x"}}, "lone surrogate"),
        ({"Healthcheck": check}, "Healthcheck.Retries"),
    ]
    for index, (process, words) in enumerate(bad):
        images.layout(tmp_path / str(index), bad=Made(small().layers, {**small().process, **process}))
        with daemon.client() as client:
            with pytest.raises(BadImage, match=words):
                client.create(on(f"oci:{tmp_path}/{index}"))
            assert client.list(all_of_them=True) == ()


def test_a_full_disk_refuses_an_image_and_the_next_smaller_one_runs(tmp_path: pathlib.Path) -> None:
    images.layout(tmp_path / "big", t=images.plain())
    images.layout(tmp_path / "small", t=small())
    with directory() as base:
        store = base / "r/images"
        store.mkdir(parents=True, mode=0o700)
        (base / "r").chmod(0o711)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "exitd-test", str(store)], check=True)
        daemon = Daemon(base)
        try:
            daemon.start()
            free = os.statvfs(store).f_bfree
            with daemon.client() as client:
                for attempt in (
                    lambda: client.load_image(f"{tmp_path}/big"),
                    lambda: client.create(on(f"oci:{tmp_path}/big")),
                ):
                    with pytest.raises(ImageStoreFailed, match="the disk is full; nothing of it was kept"):
                        attempt()
                    until(lambda: os.statvfs(store).f_bfree == free, "space is not given back")
                    check_store(daemon, client)
                client.start(client.create(on(f"oci:{tmp_path}/small")).id)
                check_store(daemon, client)
        finally:
            daemon.end()
            until(lambda: not processes_of(base), "processes")
            subprocess.run(["umount", str(store)], check=True)


def skopeos_of(daemon: Daemon) -> list[int]:
    return [pid for pid, command in commands() if b"skopeo" in command and str(daemon.base).encode() in command]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_pull_from_a_silent_registry_ends_with_the_daemon(daemon: Daemon, number: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool, daemon.client() as client:
        work = pool.submit(client.pull_image, f"127.0.0.1:{silent.getsockname()[1]}/x")
        until(lambda: skopeos_of(daemon), "no skopeo")
        begun = time.monotonic()
        daemon.kill(number)
        assert time.monotonic() - begun < 4, "the daemon's end waited for the pull"
        until(lambda: not skopeos_of(daemon), "skopeo lives on")
        error = work.exception(LIMIT_SECONDS)
    assert isinstance(error, Unreachable if number == signal.SIGKILL else ShuttingDown), error
    daemon.start()
    check(daemon)


def test_a_client_that_goes_away_leaves_its_pull_to_the_end(daemon: Daemon, registry: images.Registry) -> None:
    registry.gate.clear()
    process = Cli(daemon).begin("run", "--rm", f"docker://{registry.host}/me/small:t1")
    until(lambda: skopeos_of(daemon), "no skopeo")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 130 and "exitd goes on" in err
    registry.gate.set()
    with daemon.client() as client:
        until(lambda: [image.id for image in client.images()] == [small(1).id], "the pull has not come to its end")
        assert not client.list(all_of_them=True)


@pytest.mark.parametrize(
    "word", ["oci:", "x y", "docker://", "oci:relative", "/no/such/directory", "docker-archive:/etc"]
)
def test_what_is_no_image_is_refused_by_the_daemon_too(daemon: Daemon, word: str) -> None:
    with daemon.client() as client, pytest.raises((BadRequest, BadImage)):
        client.create(on(word, args=["x"]))


def test_a_file_that_never_ends_or_never_answers_is_no_image(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with daemon.client() as client:
        for path in (str(tmp_path / "fifo"), "/dev/zero"):
            for call in (client.load_image, client.import_image):
                with pytest.raises(BadRequest, match="not a regular file"):
                    call(path)


def test_layers_are_unpacked_while_exits_are_reported(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    """A load of many files and containers that end meanwhile: every code right, every wait answered."""
    many = tar(*(folder(f"d{number}") for number in range(50)), *((f"d{n % 50}/f{n}", b"x") for n in range(8000)))
    images.layout(tmp_path / "l", t=Made([many]))
    with daemon.client() as client, ThreadPoolExecutor(1) as pool:
        load = pool.submit(client.load_image, f"{tmp_path}/l")
        codes: list[int] = []
        while not load.done():
            _, exit_ = lives.run(client, "sh", "-c", f"exit {len(codes) % 200}")
            codes.append(exit_.code)
        load.result(LIMIT_SECONDS)
    assert codes == [number % 200 for number in range(len(codes))] and codes

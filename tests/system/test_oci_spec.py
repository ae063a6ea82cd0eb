"""Generated configurations under real runtimes: on an overlay of the host's root and on a tiny one."""

import asyncio
import functools
import json
import os
import pathlib
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace

import pytest

from supervisor.model.errors import CommandNotExecutable, CommandNotFound, RuntimeFailed
from supervisor.model.values import Mount, Spec
from supervisor.runtime.oci import cgroups, rootfs, runtime, spec, users
from supervisor.runtime.oci.command import Command, blame
from supervisor.runtime.oci.runtime import Runtime
from supervisor.system.aside import Aside
from tests.system import runtimes, tinyroot
from tests.system.waits import until

CGROUP = f"/exitd-test-oci/{os.getpid()}"
HOST = spec.Host(
    cgroup_v2=cgroups.mode() is cgroups.Mode.V2,
    swap_limit=cgroups.counts_swap(),
    hard_files=os.sysconf("SC_OPEN_MAX"),
)

Run = Callable[[Spec], subprocess.CompletedProcess[str]]


def in_a_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run_it(*args: object, **fixtures: object) -> None:
        asyncio.run(test(*args, **fixtures))

    return run_it


@pytest.fixture(params=["runc", "crun"])
def program(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    return runtime.resolve(runtimes.program(request.param, tmp_path))


@pytest.fixture
def tiny(tmp_path: pathlib.Path) -> str:
    root = tmp_path / "tiny root, with: odd name"
    tinyroot.make(root)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nweb:x:33:34::/srv:/bin/sh\n")
    (root / "etc/group").write_text("extra:x:35:web\n")
    return str(root)


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    directory = tmp_path / "run"
    yield directory
    rootfs.release(str(directory / "rootfs"))
    cgroups.remove(CGROUP)
    for top in cgroups.paths(os.path.dirname(CGROUP)).values():
        if os.path.isdir(top):
            os.rmdir(top)


def write_bundle(wanted: Spec, directory: pathlib.Path) -> str:
    """What a run is created from: config.json beside the overlay."""
    user = users.resolve(wanted.user, wanted.rootfs)
    merged = rootfs.prepare(wanted, str(directory / "rootfs"))
    document = spec.config(wanted, "0123456789abcdef", rootfs_path=merged, cgroups_path=CGROUP, user=user, host=HOST)
    (directory / "config.json").write_text(json.dumps(document))
    return merged


@pytest.fixture
def run(program: str, directory: pathlib.Path) -> Run:
    def run(wanted: Spec) -> subprocess.CompletedProcess[str]:
        write_bundle(wanted, directory)
        argv = [program, "--root", str(directory / "state"), "run", "--bundle", str(directory), "x"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, check=False)

    return run


def shell(root: str, script: str, **changes: object) -> Spec:
    return replace(Spec(name="x", args=("sh", "-c", script), rootfs=root), **changes)  # type: ignore[arg-type]


def test_the_hosts_root_serves_as_a_container(run: Run) -> None:
    result = run(shell("/", "test -s /etc/passwd && python3 -c 1; touch /exitd-was-here && ls /exitd-was-here; exit 7"))
    assert (result.returncode, result.stdout, result.stderr) == (7, "/exitd-was-here\n", "")
    assert not os.path.exists("/exitd-was-here")


def test_the_hosts_resolver_stays_visible(run: Run) -> None:
    assert run(shell("/", "cat /etc/resolv.conf")).stdout == pathlib.Path("/etc/resolv.conf").read_text()


@pytest.mark.parametrize("network", ["none", "host"])
def test_the_network_is_none_or_the_hosts(run: Run, tiny: str, network: str) -> None:
    own = os.readlink("/proc/self/ns/net")
    result = run(shell(tiny, "ls -l /proc/self/ns/net; cat /sys/class/net/lo/operstate", network=network))
    assert result.returncode == 0, result.stderr
    assert (own in result.stdout) is (network == "host")


def test_what_could_harm_the_host_is_out_of_reach(run: Run, tiny: str) -> None:
    script = """
        cat /proc/kcore | head -c 1
        touch /proc/sys/kernel/hostname /sys/x /sys/fs/cgroup/x 2>/dev/null && echo written
        mount -t tmpfs t /etc 2>/dev/null && echo mounted
        ls /dev; cat /proc/self/status
    """
    result = run(shell(tiny, script))
    assert "written" not in result.stdout
    assert "mounted" not in result.stdout
    assert "vda" not in result.stdout
    assert "NoNewPrivs:\t1" in result.stdout
    assert "CapEff:\t00000000a80425fb" in result.stdout


def test_the_oom_score_hostname_and_limits_are_as_asked(run: Run, tiny: str) -> None:
    result = run(shell(tiny, "cat /proc/self/oom_score_adj; hostname; ulimit -n; env"))
    score, hostname, files, *env = result.stdout.splitlines()
    assert (score, hostname, files) == ("0", "0123456789ab", "1024")
    assert {"HOME=/root", "HOSTNAME=0123456789ab"} <= set(env)


def test_a_user_of_the_image_has_its_groups_and_no_capabilities(run: Run, tiny: str) -> None:
    result = run(shell(tiny, "id; grep CapEff /proc/self/status", user="web", cwd="/etc"))
    assert "uid=33(web) gid=34 groups=34,35(extra)" in result.stdout, result.stderr
    assert "CapEff:\t0000000000000000" in result.stdout


def test_a_read_only_root_and_a_mount(run: Run, tiny: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir()
    mounts = (Mount(str(tmp_path / "data"), "/data"), Mount(str(tmp_path / "data"), "/data-ro", read_only=True))
    script = "touch /x 2>/dev/null || touch /data-ro/x 2>/dev/null || touch /data/y && echo good"
    result = run(shell(tiny, script, read_only=True, mounts=mounts))
    assert result.stdout == "good\n", result.stderr
    assert os.listdir(tmp_path / "data") == ["y"]


@in_a_loop
async def test_a_memory_bomb_is_counted_in_its_own_cgroup(program: str, directory: pathlib.Path) -> None:
    limit = 32 << 20
    bomb = "import signal\ntry: x = bytearray(1 << 28)\nfinally: signal.pause()"
    script = f"python3 -c '{bomb}'; sleep 1000"  # the shell stays and so does the cgroup
    write_bundle(shell("/", script, memory_bytes=limit), directory)
    made = Runtime(program, str(directory / "state"))
    argv = made.create(str(directory), str(directory / "pid"), "x", str(directory / "log"))
    assert (await runtime.run(argv, timeout_seconds=20)).returncode == 0
    assert cgroups.memory_limit_bytes(CGROUP) == limit
    assert cgroups.oom_kills(CGROUP) == 0
    assert (await runtime.run(made.start("x"), timeout_seconds=20)).returncode == 0

    def killed() -> int | None:
        assert cgroups.pids(CGROUP)
        return cgroups.oom_kills(CGROUP)

    until(killed, "no kill")
    assert (await runtime.run(made.delete("x"), timeout_seconds=20)).returncode == 0


@in_a_loop
async def test_a_life_by_runtime_commands(program: str, tiny: str, directory: pathlib.Path) -> None:
    write_bundle(shell(tiny, "exec sleep 1000"), directory)
    made = Runtime(program, str(directory / "state"))

    async def do(argv: list[str]) -> int:
        return (await runtime.run(argv, timeout_seconds=20)).returncode

    async def word() -> str:
        return await runtime.state(made, "x", Aside(), timeout_seconds=20)

    assert await word() == "absent"
    assert await do(made.create(str(directory), str(directory / "pid"), "x", str(directory / "log"))) == 0
    assert await word() == "created"
    assert await do(made.start("x")) == 0
    assert await word() == "running"
    assert int((directory / "pid").read_text()) in cgroups.pids(CGROUP)
    assert await do(made.pause("x")) == 0
    assert await word() == "paused"
    assert await do(made.resume("x")) == 0
    assert await do(made.kill("x", 9, everyone=True)) == 0
    assert await do(made.delete("x")) == 0
    assert await word() == "absent"
    assert await do(made.delete("x")) == 0


@pytest.mark.parametrize(
    ("argv0", "kind"),
    [
        ("nope", CommandNotFound),
        ("/nope", CommandNotFound),
        ("/etc/passwd/x", CommandNotFound),
        ("/etc", CommandNotExecutable),
        ("/etc/passwd", CommandNotExecutable),
    ],
)
@in_a_loop
async def test_a_failed_create_is_blamed_on_the_command(
    program: str, tiny: str, directory: pathlib.Path, argv0: str, kind: type
) -> None:
    merged = write_bundle(shell(tiny, "", args=(argv0,)), directory)
    made = Runtime(program, str(directory / "state"))
    argv = made.create(str(directory), str(directory / "pid"), "x", str(directory / "log"))
    result = await runtime.run(argv, timeout_seconds=20)
    assert result.returncode != 0
    words = runtime.last_error((directory / "log").read_text() or result.stderr)
    assert words
    assert type(blame(Command(merged, argv0), words)) is kind
    assert await runtime.state(made, "x", Aside(), timeout_seconds=20) == "absent"


@in_a_loop
async def test_a_failed_create_that_is_not_the_commands_fault(tiny: str, directory: pathlib.Path) -> None:
    mounts = (Mount("/no/such/source", "/data"),)
    merged = write_bundle(shell(tiny, "true", mounts=mounts), directory)
    made = Runtime(runtime.resolve("runc"), str(directory / "state"))
    argv = made.create(str(directory), str(directory / "pid"), "x", str(directory / "log"))
    assert (await runtime.run(argv, timeout_seconds=20)).returncode != 0
    error = blame(Command(merged, "sh"), runtime.last_error((directory / "log").read_text()))
    assert isinstance(error, RuntimeFailed)
    assert "/no/such/source" in str(error)


def test_a_bundle_runs_as_it_is_from_another_directory(
    program: str, tiny: str, directory: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    os.rename(tiny, bundle / "rootfs")
    subprocess.run(["runc", "spec"], cwd=bundle, check=True, timeout=20)
    wanted = Spec(name="x", bundle=str(bundle), args=("sh", "-c", "echo $WORD; exit 9"), env=("WORD=hi",))
    document = spec.parse_bundle(*rootfs.read_bundle(wanted.bundle))
    directory.mkdir()
    adapted = spec.adapt_bundle(document, wanted, cgroups_path=CGROUP, host=HOST)
    (directory / "config.json").write_text(json.dumps(adapted))
    argv = [program, "--root", str(directory / "state"), "run", "--bundle", str(directory), "x"]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (9, "hi\n", "")

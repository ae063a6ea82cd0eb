"""docs/security.md against a running exitd, both ways: nothing on one side that is not on the other."""

import os
import pathlib
import re
import stat
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.rights import DEFAULT, NAMES
from supervisor.runtime.oci import namefiles
from tests.system import daemons, execs, foreign_shims, images, lives, runtimes
from tests.system.containerd.server import EXITD, running
from tests.system.daemons import Daemon, spec
from tests.system.exitctl import Cli
from tests.system.relay import Relays
from tests.system.waits import until

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/security.md").read_text()
ROW = re.compile(r"^\| `([^`]+)`([^|]*)\| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
KINDS = {"d": "directory", "-": "file", "s": "socket", "p": "fifo", "l": "link"}
WORDS = {"ID": r"[0-9a-f]{64}", "HEX": r"[0-9a-f]{64}", "EXEC": r"[0-9a-f]{32}", "RUN": r"[0-9]+", "NAME": r"[^/]+"}
FLAGS = {"nosuid", "nodev", "noexec"}
VOLUME = "ROOT/c/ID/volumes/NAME"  # setgid where it is a group's
GROUPS_OWN = {"STATE/exitd.sock", "STATE/exitd.ttrpc", "STATE/caller.sock"}  # 0660 where there is a group exitd


def rows(title: str) -> dict[str, tuple[str, str]]:
    """Two cells by the first, of one table of the page."""
    (text,) = (part for part in PAGE.split("\n## ") if part.startswith(title))
    return {path + more.rstrip(): (one, other) for path, more, one, other in ROW.findall(text)}


PATHS, AT_TIMES, MOUNTS = rows("Directories"), rows("Only at times"), rows("Mounts")
EVERYWHERE = {**PATHS, **AT_TIMES}
FREE = {path.removesuffix("/**") for path in EVERYWHERE if path.endswith("/**")}  # what is below is not exitd's


def pattern(row: str) -> re.Pattern[str]:
    return re.compile("".join(WORDS.get(part, re.escape(part)) for part in re.split(r"(\b[A-Z]+\b)", row)))


def row_of(path: str, among: set[str]) -> str:
    found = [row for row in among if pattern(row).fullmatch(path)]
    assert len(found) == 1, f"{path}: {found or 'not on the page'}"
    return found[0]


def below(top: pathlib.Path, shown: str) -> Iterator[tuple[str, os.stat_result]]:
    """A path as the page names it, and what it is; what comes and goes meanwhile is passed over."""
    try:
        status = top.lstat()
        inside = sorted(top.iterdir()) if stat.S_ISDIR(status.st_mode) else []
    except FileNotFoundError:
        return
    yield shown, status
    for path in inside if not any(pattern(free).fullmatch(shown) for free in FREE) else ():
        yield from below(path, f"{shown}/{path.name}")


def shown(status: os.stat_result) -> tuple[str, str]:
    return KINDS[stat.filemode(status.st_mode)[0]], f"{stat.S_IMODE(status.st_mode):04o}"


def named(row: str, status: os.stat_result) -> tuple[str, str]:
    """What the page has to say, `any` where it says so."""
    mode = stat.S_IMODE(status.st_mode)
    if row in GROUPS_OWN and mode == 0o660:
        mode = 0o600
    if row == VOLUME and mode == 0o2777:
        mode = 0o777
    return KINDS[stat.filemode(status.st_mode)[0]], "any" if EVERYWHERE[row][1] == "any" else f"{mode:04o}"


def everything(daemon: Daemon, client: Client, base: pathlib.Path) -> pb.Container:
    """What makes something of each kind: among it a pod and its member with a volume and an exec, which is returned,
    and one that has been under a foreign shim."""
    images.layout(base / "l", t=images.small())
    client.load_image(str(base / "l"))
    client.create(pb.ContainerSpec(image=f"oci:{base}/l", args=["true"]))
    client.create(spec("true", storage="tmpfs"))
    client.remove(lives.run(client, "true", runtime=foreign_shims.RUNC)[0], force=False)
    pod = client.run_pod(spec(rootfs="", image="pause"))
    files = [pb.MountFile(path="dir/file", content=b"x", mode=0o440)]
    mounts = [
        pb.Mount(empty_dir="scratch", destination="/scratch"),
        pb.Mount(volume="data", destination="/mnt"),
        pb.Mount(empty_dir="quick", tmpfs=True, size_bytes=1 << 20, destination="/opt"),
        pb.Mount(volume="data", sub_path="part", destination="/home"),
        pb.Mount(files=files, destination="/srv"),
        pb.Mount(files=files, secret=True, destination="/media"),
    ]
    member = lives.up(client, sandbox=pod.id, mounts=mounts, stop_timeout_seconds=1)
    execs.begin(client, member.id, "sleep", "1000")
    return member


def named_rows(page: dict[str, tuple[str, str]]) -> set[str]:
    return {row for row in page if not row.endswith("/**")}


def rows_seen(daemon: Daemon, page: dict[str, tuple[str, str]]) -> set[str]:
    """Rows of these by which something is there; all that is there has one, with its kind and mode."""
    seen = set()
    for top, shown in ((daemon.state, "STATE"), (daemon.root, "ROOT")):
        for path, status in below(top, shown):
            row = row_of(path, named_rows(page))
            assert (path, named(row, status)) == (path, page[row])
            assert status.st_uid == 0
            seen.add(row)
    return seen


def flags_of(options: str) -> str:
    return ", ".join(sorted(FLAGS & {*options.split(",")})) or "none"


def mounts_found(daemon: Daemon, member: pb.Container) -> set[tuple[str, str, str]]:
    """Path, type and flags as the page has them, of the host's mounts and the member's volume."""
    found = set()
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields, (kind, *_) = line.split(), line.partition(" - ")[2].split()
        if fields[4].startswith(f"{daemon.base}/"):
            path = fields[4].replace(str(daemon.root), "ROOT").replace(str(daemon.state), "STATE")
            bound = "/subpaths/" in path  # its type is that of the file system that it is of
            found.add((row_of(path, {*MOUNTS}), "bind" if bound else kind, flags_of(fields[5])))
    inside = pathlib.Path(f"/proc/{member.init.pid}/mountinfo").read_text().splitlines()
    (volume,) = (line.split() for line in inside if line.split()[4] == "/scratch")
    names = [flags_of(line.split()[5]) for line in inside if line.split()[4] in namefiles.PLACES.values()]
    assert names == ["nodev, noexec, nosuid"] * 3
    return found | {("ROOT/c/ID/volumes/NAME, in a member", "bind", flags_of(volume[5]))}


def test_the_page_has_all_that_exitd_makes_with_its_mode_and_nothing_else(tmp_path: pathlib.Path) -> None:
    with daemons.daemon() as daemon, daemon.client() as client:
        member = everything(daemon, client, tmp_path)
        assert named_rows(PATHS) - rows_seen(daemon, PATHS) == set()
        found = mounts_found(daemon, member)
        assert found == {(path, *cells) for path, cells in MOUNTS.items()}


# In directories that are root's alone, for a moment or after luck that no test waits for here.
PASSING = {
    *("STATE/c/ID/RUN/shared-cgroup", "STATE/c/ID/RUN/resources.json", "STATE/c/ID/RUN/state"),
    *("STATE/c/ID/RUN/byhand", "STATE/c/ID/RUN/ns-NAME", "STATE/shimv2/gone/HEX", "STATE/.exitd-probe-NAME"),
    *("STATE/shimv2/relays/HEX", "STATE/shimv2/silent"),
    *("STATE/netns", "STATE/netns/NAME", "ROOT/networks", "ROOT/networks/NAME", "ROOT/networks/odd"),
    "STATE/.exitd-probe-NAME/fifo",
    *("STATE/roots", "STATE/roots/ID", "STATE/roots/ID/merged"),
    "ROOT/images/staging/NAME",
    "ROOT/trial",
}
LINES = "i=0; while [ $i -lt 300 ]; do echo a line of some thirty bytes $i; i=$((i+1)); done; exec sleep 1000"


def test_what_is_there_at_times_is_on_the_page_too(tmp_path: pathlib.Path) -> None:
    """Logs of both forms and rotated, a volume of a group, a terminal, a shim of another's making with an exec, and an
    index of images that is none."""
    with daemons.daemon() as daemon:
        daemon.kill()
        (daemon.root / "images/index.json").touch(mode=0o600)
        daemon.start()
        see_what_is_there_at_times(daemon)


def see_what_is_there_at_times(daemon: Daemon) -> None:
    with daemon.client() as client:
        group = [pb.Mount(empty_dir="g", destination="/g", group=4002)]
        logs = (pb.LogSpec(driver=driver, max_bytes=4096, max_files=3) for driver in ("cri", "json-file"))
        for log in logs:
            lives.up(client, "sh", "-c", LINES, log=log)
        lives.up(client, mounts=group, tty=True)
        other = lives.up(client, runtime=foreign_shims.RUNC)
        execs.begin(client, other.id, "sleep", "1000")
        rotated = {"ROOT/c/ID/container.log.RUN", "ROOT/c/ID/container-json.log.RUN"}
        until(lambda: rotated <= rows_seen(daemon, EVERYWHERE), "no log was rotated")
        assert named_rows(AT_TIMES) - rows_seen(daemon, EVERYWHERE) <= PASSING <= named_rows(AT_TIMES)


STATUS = re.compile(r"^\| (`.*`) \| (.*) \| (.*) \| (.*) \|$", re.MULTILINE)
CONTAINERDS = {"config.json", "log", "options.json", "rootfs", "runtime", "shim-binary-path", "work"}  # in a bundle
INSIDE = "cat /proc/self/status; echo oom_score_adj: $(cat /proc/self/oom_score_adj); cat /proc/self/mountinfo"
ASKED = {"default": (), "privileged": ("--privileged",), "user": ("--user", "1000:1000")}


def table_of(first: str) -> list[list[str]]:
    """The cells of the page's table whose heading begins with this word."""
    (table,) = (part for part in PAGE.split("\n\n") if part.startswith(f"| {first} |"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


UMASKS = {row[0].strip("`"): row[1] for row in table_of("process")}


def held(cell: str) -> int:
    """The capabilities that a cell means."""
    known = {"14": sum(1 << NAMES.index(name) for name in DEFAULT), "all": own_status("CapBnd")}
    return known.get(cell, -1) if cell != "0" else 0


def own_status(field: str) -> int:
    (found,) = re.findall(rf"^{field}:\t(\w+)", pathlib.Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found, 16)


def expected_status(column: int) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for names, *cells in table_of("field"):
        for name in re.findall(r"`(\w+)`", names):
            cell = cells[column]
            found[name] = held(cell) if name.startswith("Cap") else cell.split(",")[0]
    return found


def seen_status(lines: list[str], wanted: set[str]) -> dict[str, str | int]:
    fields = dict(line.split(":", 1) for line in lines if re.match(r"\w+:", line))
    words = {name: fields[name].split()[0] for name in wanted}
    return {name: int(word, 16) if name.startswith("Cap") else word for name, word in words.items()}


def seen_mounts(lines: list[str], wanted: set[str]) -> dict[str, tuple[str, str]]:
    found = {}
    for fields in (line.split() for line in lines if " - " in line):
        kind = fields[fields.index("-") + 1]
        if fields[4] in wanted:
            found[fields[4]] = (kind, ", ".join(sorted({*FLAGS, "ro"} & {*fields[5].split(",")})) or "none")
    return found


def expected_mounts(name: str) -> dict[str, tuple[str, str]]:
    found = {}
    for path, kind, flags, privileged in table_of("mount in a container"):
        shown = privileged if name == "privileged" and privileged != "the same" else flags
        found[path.strip("`")] = (kind, shown.split(";")[0])
    return found


def printed_by(cli: Cli, name: str) -> list[list[str]]:
    """What its first process and an exec of it see."""
    until(lambda: cli.ok("logs", name).endswith("\n"), "it has printed nothing")
    return [said.splitlines() for said in (cli.ok("logs", name), cli.ok("exec", name, "sh", "-c", INSIDE))]


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_the_page_says_what_is_seen_in_a_container_and_in_its_execs(tmp_path: pathlib.Path, runtime: str) -> None:
    with daemons.daemon(wrapper=("choom", "-n", "500", "--")) as daemon:  # nothing of that is a container's
        cli, program = Cli(daemon), runtimes.program(runtime, tmp_path)
        for column, (name, words) in enumerate(ASKED.items()):
            cli.background(name, *words, "--runtime", program, "sh", "-c", f"{INSIDE}; echo; exec sleep 1000")
            expected, mounts = expected_status(column), expected_mounts(name)
            for lines in printed_by(cli, name):
                assert seen_status(lines, {*expected}) == expected, name
                assert seen_mounts(lines, {*mounts}) == mounts, name
            cli.ok("rm", "-f", name)


def own_umask(pid: int) -> str:
    """Of one of exitd's own; all else in its status is as the page says of them all."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    status = seen_status(lines, {"Umask", "Uid", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"})
    umask, own = status.pop("Umask"), own_status("CapBnd")
    assert status == {"Uid": "0", "CapEff": own, "CapBnd": own, "NoNewPrivs": "0", "Seccomp": "0"}
    return str(umask)


def test_the_page_says_what_exitds_own_processes_have(tmp_path: pathlib.Path) -> None:
    with daemons.daemon() as daemon, daemon.client() as client:
        member = lives.up(client)
        pids = {"exitd": daemon.pid, "exitd-keeper": client.info().keeper.pid, "exitd-shim": member.shim.pid}
        assert {name: own_umask(pid) for name, pid in pids.items()} == {name: UMASKS[name] for name in pids}
        own = f"/proc/{member.init.pid}/fd"  # the loader of a program that has just begun has its libraries open
        until(lambda: sorted(os.listdir(own)) == ["0", "1", "2"], "it has more than its streams")


def test_the_page_says_what_a_relay_has_and_makes_under_containerd(relays: Relays) -> None:
    """On this machine the directories are of whoever came first; containerd's own shim makes them 0600."""
    new_host = relays.start_on_a_new_host(relays.bundle("c1"))
    with running() as containerd:
        box = containerd.box(EXITD, "page").started("--null-io", "--", "sleep", "1000")
        (relay,) = containerd.shims(box.id)
        assert own_umask(relay) == UMASKS["containerd-shim-exitd-v2"]
        assert box.exec("one", "--", "grep", "Umask", "/proc/self/status").out.split() == ["Umask:", "0022"]
        socket = pathlib.Path(containerd.socket_of(box.id))
        bundle = containerd.base / "s/io.containerd.runtime.v2.task" / containerd.namespace / box.id
        paths = {
            **{path: new_host / path.removeprefix("/") for path in ("/run/containerd", "/run/containerd/s")},
            **{f"{socket.parent}/HEX": socket},
            **{f"BUNDLE/{name}": bundle / name for name in {*os.listdir(bundle)} - CONTAINERDS},
        }
        assert {row: shown(path.lstat()) for row, path in paths.items()} == rows("Elsewhere")
        box.end()


def test_what_an_earlier_exitd_left_open_is_closed_at_the_start(tmp_path: pathlib.Path) -> None:
    volumes = tmp_path / "r/c/old/volumes"
    volumes.mkdir(parents=True)
    (tmp_path / "s").mkdir()
    for path in (tmp_path / "r", tmp_path / "r/c", tmp_path / "r/c/old", volumes, tmp_path / "s"):
        path.chmod(0o755)
    daemon = Daemon(tmp_path)
    try:
        daemon.start()
        top = tmp_path / "r"
        assert {stat.S_IMODE(path.stat().st_mode) for path in (top, top / "c", top / "c/old", volumes)} == {0o700}
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o711
    finally:
        daemon.end()

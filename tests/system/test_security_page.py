"""docs/security.md against a running exitd, both ways: nothing on one side that is not on the other."""

import os
import pathlib
import re
import stat
from collections.abc import Iterator

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from tests.system import execrig, imagerig, lives
from tests.system.daemonrig import Daemon, spec

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/security.md").read_text()
ROW = re.compile(r"^\| `([^`]+)`([^|]*)\| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
KINDS = {"d": "directory", "-": "file", "s": "socket", "p": "fifo", "l": "link"}
WORDS = {"ID": r"[0-9a-f]{64}", "HEX": r"[0-9a-f]{64}", "EXEC": r"[0-9a-f]{32}", "RUN": r"[0-9]+", "NAME": r"[^/]+"}
FLAGS = {"nosuid", "nodev", "noexec"}
GROUPS_OWN = {"STATE/exitd.sock", "STATE/exitd.ttrpc", "STATE/caller.sock"}  # 0660 where there is a group exitd


def rows(title: str) -> dict[str, tuple[str, str]]:
    """Two cells by the first, of one table of the page."""
    (text,) = (part for part in PAGE.split("\n## ") if part.startswith(title))
    return {path + more.rstrip(): (one, other) for path, more, one, other in ROW.findall(text)}


PATHS, MOUNTS = rows("Directories"), rows("Mounts")
FREE = {path.removesuffix("/**") for path in PATHS if path.endswith("/**")}  # what is below is not exitd's


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


def named(row: str, status: os.stat_result) -> tuple[str, str]:
    """What the page has to say, `any` where it says so."""
    mode = stat.S_IMODE(status.st_mode)
    if row in GROUPS_OWN and mode == 0o660:
        mode = 0o600
    return KINDS[stat.filemode(status.st_mode)[0]], "any" if PATHS[row][1] == "any" else f"{mode:04o}"


def everything(daemon: Daemon, client: Client, base: pathlib.Path) -> pb.Container:
    """A member with a volume and an exec, its pod, and a container that stands on an image: a member."""
    imagerig.layout(base / "l", t=imagerig.small())
    client.load_image(str(base / "l"))
    client.create(pb.ContainerSpec(image=f"oci:{base}/l", args=["true"]))
    pod = client.run_pod(spec(rootfs="", image="pause"))
    mounts = [pb.Mount(empty_dir="scratch", destination="/scratch")]
    member = lives.up(client, sandbox=pod.id, mounts=mounts, stop_timeout_seconds=1)
    execrig.begin(client, member.id, "sleep", "1000")
    return member


def flags_of(options: str) -> str:
    return ", ".join(sorted(FLAGS & {*options.split(",")})) or "none"


def mounts_found(daemon: Daemon, member: pb.Container) -> set[tuple[str, str, str]]:
    """Path, type and flags as the page has them, of the host's mounts and the member's volume."""
    found = set()
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields, (kind, *_) = line.split(), line.partition(" - ")[2].split()
        if fields[4].startswith(f"{daemon.base}/"):
            path = fields[4].replace(str(daemon.root), "ROOT").replace(str(daemon.state), "STATE")
            found.add((row_of(path, {*MOUNTS}), kind, flags_of(fields[5])))
    inside = pathlib.Path(f"/proc/{member.init.pid}/mountinfo").read_text().splitlines()
    (volume,) = (line.split() for line in inside if line.split()[4] == "/scratch")
    return found | {("ROOT/c/ID/volumes/NAME, in a member", "bind", flags_of(volume[5]))}


def test_the_page_has_all_that_exitd_makes_with_its_mode_and_nothing_else(tmp_path: pathlib.Path) -> None:
    with lives.daemon() as daemon, daemon.client() as client:
        member = everything(daemon, client, tmp_path)
        seen = {}
        for top, shown in ((daemon.state, "STATE"), (daemon.root, "ROOT")):
            for path, status in below(top, shown):
                row = row_of(path, {row for row in PATHS if not row.endswith("/**")})
                assert (path, named(row, status)) == (path, PATHS[row])
                assert status.st_uid == 0
                seen[row] = path
        assert {row for row in PATHS if not row.endswith("/**")} - {*seen} == set()
        found = mounts_found(daemon, member)
        assert found == {(path, *cells) for path, cells in MOUNTS.items()}


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

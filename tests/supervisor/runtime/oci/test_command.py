"""127, 126 or 125: decided by looking into the root file system."""

import os
import pathlib

import pytest

from supervisor.model.errors import CommandNotExecutable, CommandNotFound, RuntimeFailed
from supervisor.runtime.oci.command import Command, FoundCommand, NotExecutable, NotFound, blame, find_command, path_of
from supervisor.runtime.oci.users import Ids

SOMEBODY = Ids(1000, 1000, (77,))


@pytest.fixture
def rootfs(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "opt/dir").mkdir(parents=True)
    for path, mode in (("bin/tool", 0o755), ("opt/nox", 0o644), ("opt/tool", 0o644), ("opt/onlyroot", 0o700)):
        (root / path).write_text("#!/bin/sh\n")
        (root / path).chmod(mode)
    (root / "sh").symlink_to("/bin/tool")
    (root / "out").symlink_to("../../../../../../../bin/sh")
    (root / "loop").symlink_to("loop")
    return root


@pytest.mark.parametrize(
    ("argv0", "path_env", "cwd", "kind"),
    [
        ("tool", "/bin", "/", FoundCommand),
        ("tool", "/nope:/bin", "/", FoundCommand),
        ("tool", "/opt:/bin", "/", FoundCommand),  # the one in /opt has no x bit
        ("tool", "/opt", "/", NotExecutable),
        ("dir", "/opt", "/", NotFound),
        ("tool", "", "/bin", FoundCommand),  # an empty entry is the working directory
        ("tool", "", "/", NotFound),
        ("/bin/tool", "", "/", FoundCommand),
        ("/sh", "", "/", FoundCommand),
        ("./tool", "", "/bin", FoundCommand),
        ("bin/tool", "", "/", FoundCommand),
        ("bin/tool", "", "/opt", NotFound),
        ("../../bin/tool", "", "/nope/..", NotFound),
        ("/out", "", "/", NotFound),
        ("/loop", "", "/", NotFound),
        ("/bin/tool/x", "", "/", NotFound),
        ("/opt/dir", "", "/", NotExecutable),
        ("/opt/nox", "", "/", NotExecutable),
        ("", "/bin", "/", NotFound),
        (".", "/bin", "/", NotFound),
    ],
)
def test_a_command_is_looked_for_as_execvp_does(
    rootfs: pathlib.Path, argv0: str, path_env: str, cwd: str, kind: type
) -> None:
    assert type(find_command(Command(str(rootfs), argv0, path_env, cwd))) is kind


def test_what_the_user_may_not_execute_is_not_executable(rootfs: pathlib.Path) -> None:
    assert isinstance(find_command(Command(str(rootfs), "/opt/onlyroot")), FoundCommand)
    assert isinstance(find_command(Command(str(rootfs), "/opt/onlyroot", user=SOMEBODY)), NotExecutable)
    assert isinstance(find_command(Command(str(rootfs), "/bin/tool", user=SOMEBODY)), FoundCommand)


def test_what_the_user_may_not_reach_is_not_executable(rootfs: pathlib.Path) -> None:
    (rootfs / "bin").chmod(0o700)
    assert isinstance(find_command(Command(str(rootfs), "/bin/tool", user=SOMEBODY)), NotExecutable)


def test_an_additional_group_counts(rootfs: pathlib.Path) -> None:
    group, stranger = (rootfs / "opt/nox").stat().st_gid, os.getuid() + 1
    (rootfs / "opt/nox").chmod(0o610)
    member, other = Ids(stranger, group + 1, (group,)), Ids(stranger, group + 1)
    assert isinstance(find_command(Command(str(rootfs), "/opt/nox", user=member)), FoundCommand)
    assert isinstance(find_command(Command(str(rootfs), "/opt/nox", user=other)), NotExecutable)


def test_a_fifo_is_not_executable(rootfs: pathlib.Path) -> None:
    os.mkfifo(rootfs / "fifo", 0o777)
    assert isinstance(find_command(Command(str(rootfs), "/fifo")), NotExecutable)


@pytest.mark.parametrize(
    ("argv0", "kind"),
    [("/nope", CommandNotFound), ("/opt/nox", CommandNotExecutable), ("/bin/tool", RuntimeFailed)],
)
def test_the_blame_comes_from_looking_and_carries_the_runtimes_words(
    rootfs: pathlib.Path, argv0: str, kind: type
) -> None:
    error = blame(Command(str(rootfs), argv0), "executable file not found: permission denied")
    assert type(error) is kind
    assert "executable file not found: permission denied" in str(error)


@pytest.mark.parametrize("argv0", ["{no}", "}", "{0.__class__}", "%s", "/opt/{nox}"])
def test_whatever_a_command_is_named_its_name_and_the_runtimes_words_are_quoted(
    rootfs: pathlib.Path, argv0: str
) -> None:
    (rootfs / "opt/{nox}").touch()
    error = blame(Command(str(rootfs), argv0), f"exec: {argv0}: {{0}}")
    assert isinstance(error, CommandNotFound | CommandNotExecutable)
    assert repr(argv0) in str(error) and f"exec: {argv0}: {{0}}" in str(error)


def test_without_a_root_file_system_it_is_not_the_commands_fault(tmp_path: pathlib.Path) -> None:
    assert isinstance(blame(Command(str(tmp_path / "gone"), "sh"), ""), RuntimeFailed)


def test_the_last_path_counts() -> None:
    assert path_of(["PATH=/a", "X=1", "PATH=/b"]) == "/b"
    assert path_of([]).startswith("/usr/local/sbin:")


@pytest.mark.parametrize(
    ("argv0", "path_env", "mounts", "kind"),
    [
        ("/data/tool", "", ("/data",), RuntimeFailed),
        ("/data/tool", "", ("/data/tool",), RuntimeFailed),
        ("tool2", "/bin:/data", ("/data",), RuntimeFailed),
        ("/dat", "", ("/data",), CommandNotFound),
        ("tool2", "/bin", ("/data",), CommandNotFound),
    ],
)
def test_a_command_that_a_mount_may_have_brought_is_not_called_missing(
    rootfs: pathlib.Path, argv0: str, path_env: str, mounts: tuple[str, ...], kind: type
) -> None:
    assert type(blame(Command(str(rootfs), argv0, path_env, mounts=mounts), "words")) is kind

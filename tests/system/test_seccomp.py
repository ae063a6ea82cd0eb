"""exitd's own seccomp profile from the inside: what a program in a container tries, and what it gets."""

import errno
import json
import pathlib
import subprocess

import pytest

from supervisor.oci import machine
from tests.system import crun
from tests.system.clirig import Cli

COMPILE_SECONDS = 60
SOURCE = pathlib.Path(__file__).with_name("attempts.c")
# What is answered with EPERM, whoever asks.
NOT_PERMITTED = """
    keyctl add_key request_key userfaultfd io_uring_setup io_uring_enter io_uring_register ptrace-other unshare-user
    unshare-mount setns clone-user clone-mount clone-user-net mount umount fsopen open_tree move_mount pivot_root device
    bpf perf_event_open kexec_load kexec_file_load init_module finit_module delete_module open_by_handle_at reboot
    swapon swapoff acct quotactl clock_settime sethostname syslog kcmp move_pages socket-alg socket-vsock
"""
NOT_THERE = "clone3 later personality-fixed"
ALLOWED = "ptrace-own clone-plain chroot personality-ask socket-inet socket-unix"
SYSRQ = pathlib.Path("/proc/sysrq-trigger")  # not every kernel has it; containers have it read-only
EXPECTED = {
    **dict.fromkeys(NOT_PERMITTED.split(), errno.EPERM),
    **dict.fromkeys(NOT_THERE.split(), errno.ENOSYS),
    **dict.fromkeys(ALLOWED.split(), 0),
    "sysrq-trigger": errno.EROFS if SYSRQ.exists() else errno.ENOENT,
}
# The kernel itself refuses the others to a program without capabilities, or lets them through on some machines alone.
LET_THROUGH_WITHOUT = {"clone3": errno.EINVAL, "personality-fixed": 0, "request_key": errno.EFAULT, "keyctl": 0}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A root file system with one program."""
    directory = tmp_path_factory.mktemp("attempts")
    words = ["cc", "-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(directory / "attempts"), str(SOURCE)]
    subprocess.run(words, check=True, timeout=COMPILE_SECONDS)
    return directory


def attempted(cli: Cli, root: pathlib.Path, *options: str) -> dict[str, int]:
    said = cli("run", "--rm", *options, "--rootfs", str(root), "/attempts")
    assert (said.code, said.err) == (0, ""), said
    return {word: int(number) for word, number in map(str.split, said.out.splitlines())}


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_what_a_container_tries_is_answered_as_the_profile_says(
    cli: Cli, root: pathlib.Path, tmp_path: pathlib.Path, runtime: str
) -> None:
    assert attempted(cli, root, "--runtime", crun.program(runtime, tmp_path)) == EXPECTED


def test_unconfined_the_kernel_itself_answers(cli: Cli, root: pathlib.Path) -> None:
    found = attempted(cli, root, "--security-opt", "seccomp=unconfined")
    assert {word: found[word] for word in LET_THROUGH_WITHOUT} == LET_THROUGH_WITHOUT


def test_a_capability_brings_its_calls(cli: Cli, root: pathlib.Path) -> None:
    """The clock's number is none: the kernel looks at it before it looks for the capability."""
    assert attempted(cli, root, "--cap-add", "SYS_TIME")["clock_settime"] == errno.EINVAL


def test_a_profile_of_ones_own_decides_alone(cli: Cli, root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    rule = {"names": ["chroot"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EXDEV, "excludes": {"caps": ["CAP_BPF"]}}
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}))
    found = attempted(cli, root, "--security-opt", f"seccomp={file}")
    assert (found["chroot"], found["keyctl"]) == (errno.EXDEV, 0)


def test_a_profile_that_is_broken_or_not_there_is_refused_by_its_name(cli: Cli, tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"action": "SCMP_ACT_ALLOW"}]}')
    said = cli.run("--security-opt", f"seccomp={broken}", "true")
    assert said.code == 125 and f"{broken}: syscalls[0]: either names or name must be there" in said.err
    said = cli.run("--security-opt", f"seccomp={tmp_path}/none", "true")
    assert said.code == 125 and f"{tmp_path}/none: No such file" in said.err


def test_a_crun_without_seccomp_runs_nothing_that_was_to_have_a_profile(cli: Cli, tmp_path: pathlib.Path) -> None:
    """It would leave the profile out, and say nothing."""
    real, program = crun.program("crun", tmp_path), tmp_path / "without"
    program.write_text(
        f"""#!/bin/sh
        [ "$1" = --version ] || exec {real} "$@"
        exec {real} --version | sed 's/+SECCOMP //'
        """
    )
    program.chmod(0o755)
    words = ("--rm", "--runtime", str(program))
    for options in ("", "--security-opt seccomp=builtin", "--privileged --security-opt seccomp=builtin"):
        said = cli.run(*words, *options.split(), "true")
        assert (said.code, "was built without seccomp" in said.err) == (125, True), said
    for options in ("--security-opt seccomp=unconfined", "--privileged"):
        assert cli.run(*words, *options.split(), "true").code == 0
    assert cli.ok("ps", "-aq") == ""


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_a_profile_of_what_the_kernel_does_not_have_is_refused_by_name(
    cli: Cli, tmp_path: pathlib.Path, runtime: str
) -> None:
    words = ("--rm", "--runtime", crun.program(runtime, tmp_path), "--security-opt")
    asked = {"apparmor=docker-default": "AppArmor", "label=type:x_t": "SELinux"}
    there = {"AppArmor": machine.has_apparmor(), "SELinux": machine.has_selinux()}
    for option, what in asked.items():
        if not there[what]:
            said = cli.run(*words, option, "true")
            assert said.code == 125 and f"this machine's kernel has no {what}" in said.err, said
    for option in ("apparmor=unconfined", "label=disable"):
        assert cli.run(*words, option, "true").code == 0


def test_an_exec_is_under_its_containers_profile_and_a_restart_keeps_it(cli: Cli) -> None:
    seccomp = ("grep", "^Seccomp:", "/proc/self/status")
    confined = cli.background("confined", "sleep", "1000")
    assert cli.ok("exec", confined, *seccomp).split() == ["Seccomp:", "2"]
    cli.ok("restart", "-t", "0", confined)
    assert cli.ok("exec", confined, *seccomp).split() == ["Seccomp:", "2"]
    cli.ok("rm", "-f", confined)

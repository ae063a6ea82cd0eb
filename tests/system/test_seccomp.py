"""exitd's own seccomp profile from the inside: what a program in a container tries, and what it gets."""

import errno
import json
import pathlib
import platform
import signal
import subprocess
import sys

import pytest

from supervisor.runtime.oci import cgroups, machine
from supervisor.runtime.oci.privileges import MASKED_PATHS, READONLY_PATHS
from tests.system import runtimes
from tests.system.exitctl import Cli

COMPILE_SECONDS = 60
SOURCE = pathlib.Path(__file__).with_name("attempts.c")
# What is answered with EPERM, whoever asks.
NOT_PERMITTED = """
    keyctl add_key request_key userfaultfd io_uring_setup io_uring_enter io_uring_register ptrace-other pidfd_getfd
    process_madvise unshare-user unshare-mount setns clone-user clone-mount clone-user-net mount umount mount-cgroup
    fsopen fsmount mount_setattr open_tree move_mount pivot_root device bpf perf_event_open kexec_load kexec_file_load
    init_module finit_module delete_module open_by_handle_at reboot swapon swapoff acct quotactl fanotify_init
    clock_settime settimeofday sethostname setdomainname syslog kcmp mbind set_mempolicy get_mempolicy migrate_pages
    move_pages vhangup socket-alg socket-vsock
"""
NOT_THERE = "clone3 later personality-fixed"
ALLOWED = """
    ptrace-own process_vm_readv-own process_vm_writev-own clone-plain chroot personality-ask socket-inet socket-unix
"""
OF_X86 = {**dict.fromkeys(("iopl", "ioperm"), errno.EPERM), **dict.fromkeys(("32-bit", "x32"), 128 + signal.SIGSYS)}
# Files that make the kernel run a program, or end the machine. No kernel has to have them; in a container they are
# read-only.
READ_ONLY = {
    "sysrq-trigger": "/proc/sysrq-trigger",
    "core_pattern": "/proc/sys/kernel/core_pattern",
    "modprobe": "/proc/sys/kernel/modprobe",
    "uevent_helper": "/sys/kernel/uevent_helper",
}
IS_V2 = cgroups.mode() is cgroups.Mode.V2
# Of its own cgroup alone, read-only. The file release_agent is at the top of a hierarchy, which no container sees.
OF_CGROUPS = {
    **dict.fromkeys(("cgroup.procs-v1", "notify_on_release"), errno.ENOENT if IS_V2 else errno.EROFS),
    **{"cgroup.procs": errno.EROFS if IS_V2 else errno.ENOENT},
    **dict.fromkeys(("release_agent", "release_agent-v1"), errno.ENOENT),
}
EXPECTED = {
    **dict.fromkeys(NOT_PERMITTED.split(), errno.EPERM),
    **dict.fromkeys(NOT_THERE.split(), errno.ENOSYS),
    **dict.fromkeys(ALLOWED.split(), 0),
    **(OF_X86 if platform.machine() == "x86_64" else {}),
    **{word: errno.EROFS if pathlib.Path(path).exists() else errno.ENOENT for word, path in READ_ONLY.items()},
    **OF_CGROUPS,
}
# A libseccomp that does not know the name cannot have it in a filter: it is ENOSYS then.
BY_LIBRARY = {
    **{word: {errno.EPERM, errno.ENOSYS} for word in ("lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules")},
    **{word: {0, errno.ENOSYS} for word in ("listmount", "statmount")},
}
# The kernel itself refuses the others to a program without capabilities, or lets them through on some machines alone.
LET_THROUGH_WITHOUT = {
    **{"clone3": errno.EINVAL, "personality-fixed": 0, "request_key": errno.EFAULT, "keyctl": 0},
    **{"pidfd_getfd": errno.EBADF, "process_madvise": errno.EBADF, "migrate_pages": errno.ESRCH},
}
# Each by its own; the arguments are wrong, which the kernel sees before it looks for the capability.
WITH_CAPABILITIES = {
    **dict.fromkeys(("clock_settime", "settimeofday"), errno.EINVAL),  # SYS_TIME
    **dict.fromkeys(("mbind", "set_mempolicy", "get_mempolicy"), errno.EINVAL),  # SYS_NICE
    **{"kcmp": errno.EINVAL, "pidfd_getfd": errno.EBADF, "process_madvise": errno.EBADF},  # SYS_PTRACE
}


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
    found = attempted(cli, root, "--runtime", runtimes.program(runtime, tmp_path))
    by_library = {word: found.pop(word) for word in BY_LIBRARY}
    assert found == EXPECTED
    assert all(number in BY_LIBRARY[word] for word, number in by_library.items()), by_library


def test_unconfined_the_kernel_itself_answers(cli: Cli, root: pathlib.Path) -> None:
    found = attempted(cli, root, "--security-opt", "seccomp=unconfined")
    assert {word: found[word] for word in LET_THROUGH_WITHOUT} == LET_THROUGH_WITHOUT


def test_a_capability_brings_its_calls(cli: Cli, root: pathlib.Path) -> None:
    found = attempted(cli, root, "--cap-add", "SYS_TIME,SYS_NICE,SYS_PTRACE")
    assert {word: found[word] for word in WITH_CAPABILITIES} == WITH_CAPABILITIES


LOOKS = """
import errno, json, os, sys

def hidden(path):
    if os.path.isdir(path):
        return os.listdir(path) == [] and refused(f"{path}/x") == errno.EROFS
    return open(path, "rb").read(1) == b""

def refused(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError as error:
        return error.errno

def writable(path):
    names = [f"{top}/{name}" for top, _, names in os.walk(path) for name in names] or [path]
    opened = [name for name in names if os.path.exists(name) and refused(name) is None]
    return opened + [path] * (not os.statvfs(path).f_flag & os.ST_RDONLY)

masked, fixed = (filter(os.path.exists, paths) for paths in json.loads(sys.argv[1]))
print(json.dumps([{path: hidden(path) for path in masked}, {path: writable(path) for path in fixed}]))
"""


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_from_inside_a_container_the_hidden_is_empty_and_the_read_only_cannot_be_opened_for_writing(
    cli: Cli, tmp_path: pathlib.Path, runtime: str
) -> None:
    paths = json.dumps([[*MASKED_PATHS, *machine.throttles()], [*READONLY_PATHS, "/sys/kernel"]])
    words = ("--runtime", runtimes.program(runtime, tmp_path), sys.executable, "-c", LOOKS, paths)
    said = cli.run("--rm", *words)
    assert (said.code, said.err) == (0, ""), said
    hidden, writable = json.loads(said.out)
    assert {"/proc/keys", "/proc/sys"} <= {*hidden, *writable}
    assert set(hidden.values()) == {True}, hidden
    assert {path: names for path, names in writable.items() if names} == {}


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
    real, program = runtimes.program("crun", tmp_path), tmp_path / "without"
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
    words = ("--rm", "--runtime", runtimes.program(runtime, tmp_path), "--security-opt")
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

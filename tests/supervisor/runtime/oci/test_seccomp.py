"""supervisor/runtime/oci/seccomp.py and confine.py: exitd's own profile, and what a configuration gets of it."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from supervisor.model.values import Security
from supervisor.runtime.oci import seccomp
from supervisor.runtime.oci.confine import confine
from supervisor.runtime.oci.seccomp import ALLOWED, DENIED, GATED, SeccompMachine, builtin

AMD64, ARM64 = SeccompMachine("x86_64", (6, 1)), SeccompMachine("aarch64", (6, 1))
GATED_CALLS = {(right, name) for right, names in GATED.items() for name in names.split()}

# arm64's calls up to Linux 6.19, by the names that libseccomp and the kernel's table have for them.
ON_ARM64 = """
    accept accept4 acct add_key adjtimex bind bpf brk cachestat capget capset chdir chroot clock_adjtime
    clock_getres clock_gettime clock_nanosleep clock_settime clone clone3 close close_range connect copy_file_range
    delete_module dup dup3 epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 eventfd2 execve execveat exit exit_group
    faccessat faccessat2 fadvise64 fallocate fanotify_init fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown
    fchownat fcntl fdatasync fgetxattr file_getattr file_setattr finit_module flistxattr flock fremovexattr fsconfig
    fsetxattr fsmount fsopen fspick fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv
    futex_wake get_mempolicy get_robust_list getcpu getcwd getdents64 getegid geteuid getgid getgroups getitimer
    getpeername getpgid getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid
    getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat init_module inotify_add_watch
    inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit io_uring_enter
    io_uring_register io_uring_setup ioctl ioprio_get ioprio_set kcmp kexec_file_load kexec_load keyctl kill
    landlock_add_rule landlock_create_ruleset landlock_restrict_self lgetxattr linkat listen listmount listns
    listxattr listxattrat llistxattr lookup_dcookie lremovexattr lseek lsetxattr lsm_get_self_attr lsm_list_modules
    lsm_set_self_attr madvise map_shadow_stack mbind membarrier memfd_create memfd_secret migrate_pages mincore
    mkdirat mknodat mlock mlock2 mlockall mmap mount mount_setattr move_mount move_pages mprotect mq_getsetattr
    mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock
    munlockall munmap name_to_handle_at nanosleep newfstatat nfsservctl open_by_handle_at open_tree open_tree_attr
    openat openat2 perf_event_open personality pidfd_getfd pidfd_open pidfd_send_signal pipe2 pivot_root pkey_alloc
    pkey_free pkey_mprotect ppoll prctl pread64 preadv preadv2 prlimit64 process_madvise process_mrelease
    process_vm_readv process_vm_writev pselect6 ptrace pwrite64 pwritev pwritev2 quotactl quotactl_fd read readahead
    readlinkat readv reboot recvfrom recvmmsg recvmsg remap_file_pages removexattr removexattrat renameat renameat2
    request_key restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
    rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr
    sched_setparam sched_setscheduler sched_yield seccomp semctl semget semop semtimedop sendfile sendmmsg sendmsg
    sendto set_mempolicy set_mempolicy_home_node set_robust_list set_tid_address setdomainname setfsgid setfsuid
    setgid setgroups sethostname setitimer setns setpgid setpriority setregid setresgid setresuid setreuid setrlimit
    setsid setsockopt settimeofday setuid setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack
    signalfd4 socket socketpair splice statfs statmount statx swapoff swapon symlinkat sync sync_file_range syncfs
    sysinfo syslog tee tgkill timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
    timerfd_gettime timerfd_settime times tkill truncate umask umount2 uname unlinkat unshare userfaultfd utimensat
    vhangup vmsplice wait4 waitid write writev
"""
# What only x86-64 has: older forms of calls that arm64 began without, and its processor's own.
ON_X86_64_ALONE = """
    _sysctl access alarm arch_prctl chmod chown creat create_module dup2 epoll_create epoll_wait eventfd fork
    futimesat get_kernel_syms get_thread_area getdents getpgrp inotify_init ioperm iopl lchown link lstat mkdir
    mknod modify_ldt open pause pipe poll query_module readlink rename rmdir select set_thread_area signalfd stat
    symlink sysfs time unlink uprobe uretprobe uselib ustat utime utimes vfork
"""


def rules(rights: Iterable[str], machine: SeccompMachine = AMD64) -> list[Any]:
    profile: dict[str, Any] = builtin(rights, machine)
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    return list(profile["syscalls"])


def names(rights: Iterable[str], action: str) -> set[str]:
    """Those that are answered in that way whatever their arguments are."""
    return {name for rule in rules(rights) if rule["action"] == action and "args" not in rule for name in rule["names"]}


@pytest.mark.parametrize(("right", "name"), sorted(GATED_CALLS))
def test_a_capability_adds_its_calls_and_without_it_they_are_not_permitted(right: str, name: str) -> None:
    assert name in names([right], seccomp.ALLOW) and name not in names([right], seccomp.ERRNO)
    others = [other for other, call in GATED_CALLS if call != name and (other, name) not in GATED_CALLS]
    assert name in names(others, seccomp.ERRNO) and name not in names(others, seccomp.ALLOW)


def test_no_call_is_in_two_places() -> None:
    gated = {name for _, name in GATED_CALLS}
    arguments = {"clone", "clone3", "personality", "socket"}
    lists = [*ALLOWED.split(), *DENIED.split(), *gated, *arguments]
    assert len(lists) == len(set(lists))


def test_every_call_of_arm64_has_an_answer_and_what_it_lacks_is_x86_64s() -> None:
    arguments = {"clone", "clone3", "personality", "socket"}
    known = {*ALLOWED.split(), *DENIED.split(), *(name for _, name in GATED_CALLS), *arguments}
    assert set(ON_ARM64.split()) - known == set()
    assert known - set(ON_ARM64.split()) == set(ON_X86_64_ALONE.split())


def test_what_the_profile_does_not_know_is_not_there() -> None:
    known = names([], seccomp.ALLOW) | names([], seccomp.ERRNO)
    assert {"clone3", "a_call_of_next_year"}.isdisjoint(known)
    assert {"keyctl", "io_uring_setup", "userfaultfd"} <= names([], seccomp.ERRNO)


def test_every_namespace_flag_of_clone_is_looked_at() -> None:
    clone = [rule for rule in rules([]) if rule["names"] == ["clone"]]
    (allowed,) = (rule["args"][0] for rule in clone if rule["action"] == seccomp.ALLOW)
    refused = [rule["args"][0] for rule in clone if rule["action"] == seccomp.ERRNO]
    assert (allowed["op"], allowed["valueTwo"]) == ("SCMP_CMP_MASKED_EQ", 0)
    assert allowed["value"] == sum(argument["value"] for argument in refused) == 0x7E02_0000
    assert all(argument["value"] == argument["valueTwo"] for argument in refused)
    assert "clone" in names(["CAP_SYS_ADMIN"], seccomp.ALLOW) and "clone3" in names(["CAP_SYS_ADMIN"], seccomp.ALLOW)
    on_s390 = [rule["args"][0]["index"] for rule in rules([], SeccompMachine("s390x")) if rule["names"] == ["clone"]]
    assert set(on_s390) == {1}


def matches(argument: dict[str, Any], value: int) -> bool:
    match argument["op"].removeprefix("SCMP_CMP_"):
        case "EQ":
            return bool(value == argument["value"])
        case "LT":
            return bool(value < argument["value"])
        case "GT":
            return bool(value > argument["value"])
    raise AssertionError(argument)


@pytest.mark.parametrize("family", [*range(50), 2**31])
def test_every_socket_family_has_one_answer(family: int) -> None:
    sockets = [rule for rule in rules([]) if rule["names"] == ["socket"]]
    found = [rule["action"] for rule in sockets if matches(rule["args"][0], family)]
    assert found == [seccomp.ERRNO if family in (seccomp.AF_ALG, seccomp.AF_VSOCK) else seccomp.ALLOW]


def test_the_filter_is_for_the_machines_own_calls() -> None:
    assert builtin([], AMD64)["architectures"] == ["SCMP_ARCH_X86_64"]
    assert builtin([], ARM64)["architectures"] == ["SCMP_ARCH_AARCH64"]
    assert "architectures" not in builtin([], SeccompMachine("alpha"))


CONFIG: dict[str, object] = {
    "process": {"capabilities": {"bounding": ["CAP_SYS_TIME"]}},
    "linux": {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}, "namespaces": []},
}


def confined(word: str, document: dict[str, object] = CONFIG) -> Any:
    linux: Any = confine(document, Security(seccomp=word), AMD64)["linux"]
    assert linux["namespaces"] == []
    return linux.get("seccomp")


def test_a_configuration_gets_what_was_asked_for_its_own_capabilities() -> None:
    assert confined("") == {"defaultAction": "SCMP_ACT_ALLOW"}
    assert confined("unconfined") is None
    assert confined("builtin") == builtin(["CAP_SYS_TIME"], AMD64)
    assert confined("builtin", {**CONFIG, "process": {}}) == builtin([], AMD64)
    rule = {"names": ["a"], "action": "SCMP_ACT_KILL", "includes": {"caps": ["CAP_BPF"]}}
    asked = json.dumps({"defaultAction": "SCMP_ACT_LOG", "syscalls": [rule]})
    assert confined(asked) == {"defaultAction": "SCMP_ACT_LOG", "syscalls": []}
    assert CONFIG["linux"] == {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}, "namespaces": []}

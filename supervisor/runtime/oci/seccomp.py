"""exitd's own seccomp profile as data, and a function from a container's capabilities to linux.seccomp of the OCI
configuration. Pure.

The calls are those of Linux 6.18 on x86-64 and arm64; seccomp(2) and capabilities(7) describe them, docs/seccomp.md
says how each is treated. There are three answers: allowed; EPERM for calls that are known and forbidden; ENOSYS for
calls that are not listed, so that a C library that tries a newer call first falls back to an older one.
"""

from collections.abc import Iterable

from shim.frozen import frozen

Document = dict[str, object]

EPERM, ENOSYS = 1, 38
ALLOW, ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"

# A filter without a rule for an architecture ends processes that use its calls with SIGSYS. The 32-bit ABI and x32 are
# left out: socketcall(2) hides a socket's family from every filter, and each further architecture costs a container 20
# ms.
ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}

ALLOWED = """
    accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_adjtime
    clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3
    epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit
    exit_group faccessat faccessat2 fadvise64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown
    fchownat fcntl fdatasync fgetxattr file_getattr file_setattr flistxattr flock fork fremovexattr fsetxattr fstat
    fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list
    get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid
    getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname
    getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch inotify_init inotify_init1
    inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioctl ioprio_get ioprio_set
    kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen
    listmount listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack
    membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap modify_ldt
    mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget
    msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat open openat openat2 pause
    pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv
    preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 ptrace pwrite64 pwritev pwritev2
    read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr removexattrat
    rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
    rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
    sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop
    sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid
    setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid
    setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 socketpair splice stat
    statfs statmount statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create
    timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times
    tkill truncate umask uname unlink unlinkat uprobe uretprobe utime utimensat utimes vfork vmsplice wait4 waitid
    write writev
"""
DENIED = """
    _sysctl add_key create_module get_kernel_syms io_uring_enter io_uring_register io_uring_setup kexec_file_load
    kexec_load keyctl migrate_pages move_pages nfsservctl pivot_root query_module request_key swapoff swapon sysfs
    uselib userfaultfd ustat
"""
# What a capability adds. The kernel itself checks the capability again, in the relevant namespace.
GATED = {
    "CAP_BPF": "bpf",
    "CAP_DAC_READ_SEARCH": "open_by_handle_at",
    "CAP_PERFMON": "perf_event_open",
    "CAP_SYS_ADMIN": """
        bpf fanotify_init fsconfig fsmount fsopen fspick listns lookup_dcookie lsm_get_self_attr lsm_list_modules
        lsm_set_self_attr mount mount_setattr move_mount open_tree open_tree_attr perf_event_open quotactl
        quotactl_fd setdomainname sethostname setns syslog umount2 unshare
    """,
    "CAP_SYS_BOOT": "reboot",
    "CAP_SYS_CHROOT": "chroot",
    "CAP_SYS_MODULE": "delete_module finit_module init_module",
    "CAP_SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "CAP_SYS_PACCT": "acct",
    "CAP_SYS_PTRACE": "kcmp pidfd_getfd process_madvise",
    "CAP_SYS_RAWIO": "ioperm iopl",
    "CAP_SYS_TIME": "clock_settime settimeofday",
    "CAP_SYS_TTY_CONFIG": "vhangup",
    "CAP_SYSLOG": "syslog",
}
MAKES_NAMESPACES = "CAP_SYS_ADMIN"

# CLONE_NEW* of clone(2): mount, cgroup, uts, ipc, user, pid, network. The bit of a time namespace is a signal's here.
NAMESPACE_FLAGS = (0x20000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000)
CLONE_FLAGS_AT = {"s390x": 1}  # which argument of clone(2) has the flags; everywhere else the first, 0
PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0xFFFF_FFFF)  # Linux, 32-bit Linux, either as Linux 2.6; the last one asks
AF_ALG, AF_VSOCK = 38, 40


@frozen
class SeccompMachine:
    """What a profile depends on: uname(2)'s name of the processor, and the kernel's release."""

    name: str = "x86_64"
    kernel: tuple[int, int] = (5, 3)


def builtin(rights: Iterable[str], machine: SeccompMachine) -> Document:
    """Return exitd's own profile for a container whose bounding set is `rights`."""
    held = frozenset(rights)
    added = {name for right, names in GATED.items() if right in held for name in names.split()}
    gated = {name for names in GATED.values() for name in names.split()}
    clone = ["clone", "clone3"] if MAKES_NAMESPACES in held else []
    return {
        "defaultAction": ERRNO,
        "defaultErrnoRet": ENOSYS,
        **architectures(machine),
        "syscalls": [
            allow([*ALLOWED.split(), *sorted(added), *clone]),
            refuse([*DENIED.split(), *sorted(gated - added)]),
            *([] if clone else _clone(CLONE_FLAGS_AT.get(machine.name, 0))),
            *(allow(["personality"], _compare(0, "EQ", value)) for value in PERSONALITIES),
            *_socket(),
        ],
    }


def architectures(machine: SeccompMachine) -> Document:
    """Return the architectures; None for an unknown processor: the runtime then uses its own list."""
    known = ARCHITECTURES.get(machine.name)
    return {"architectures": [known]} if known else {}


def allow(names: list[str], *arguments: Document) -> Document:
    """Return a rule of linux.seccomp (runtime-spec, config-linux.md) that allows these system calls; with `arguments`
    only where all of those hold."""
    return {"names": names, "action": ALLOW, **({"args": list(arguments)} if arguments else {})}


def refuse(names: list[str], *arguments: Document) -> Document:
    """Return a rule that fails these system calls with EPERM. `arguments`: as in `allow`."""
    return {"names": names, "action": ERRNO, "errnoRet": EPERM, **({"args": list(arguments)} if arguments else {})}


def _clone(at: int) -> Iterable[Document]:
    """Allow processes and threads, but no namespaces. clone3(2), whose flags no filter can see, gives ENOSYS."""
    yield allow(["clone"], _compare(at, "MASKED_EQ", sum(NAMESPACE_FLAGS)))
    for flag in NAMESPACE_FLAGS:
        yield refuse(["clone"], _compare(at, "MASKED_EQ", flag, flag))


def _socket() -> Iterable[Document]:
    """Allow all families but two: vsock(7) reaches the hypervisor and its other guests, alg the kernel's ciphers."""
    for operator, family in (("LT", AF_ALG), ("EQ", AF_ALG + 1), ("GT", AF_VSOCK)):
        yield allow(["socket"], _compare(0, operator, family))
    for family in (AF_ALG, AF_VSOCK):
        yield refuse(["socket"], _compare(0, "EQ", family))


def _compare(index: int, operator: str, value: int, masked: int = 0) -> Document:
    """Compare one argument. MASKED_EQ: the argument's bits that are set in `value` must equal `masked`."""
    return {"index": index, "op": f"SCMP_CMP_{operator}", "value": value, "valueTwo": masked}

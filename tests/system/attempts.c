/*
 * What a program in a container tries, one line each: a word and the errno it got, 0 for none, or 128 and the number of
 * the signal that ended it. Nothing here can harm a machine that lets it through: arguments are such that the kernel
 * refuses them, or what they make ends with the child that made it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NO_FD (-1)
#define A_LATER_CALL 999
#define ADDR_NO_RANDOMIZE 0x40000
/* Numbers that the C library may not have yet; from Linux 5.0 on they are the same on every machine. */
#define PIDFD_GETFD 438
#define PROCESS_MADVISE 440
#define MOUNT_SETATTR 442
#define STATMOUNT 457
#define LISTMOUNT 458
#define LSM_GET_SELF_ATTR 459
#define LSM_SET_SELF_ATTR 460
#define LSM_LIST_MODULES 461
#define ROOT_OF_MOUNTS (~0ULL)
#define X32_BIT 0x40000000

static void report(const char *word, long result)
{
	printf("%s %d\n", word, result < 0 ? errno : 0);
	fflush(stdout);
}

static void report_signal(const char *word, pid_t child)
{
	int status = 0;

	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		printf("%s %d\n", word, 128 + WTERMSIG(status));
	fflush(stdout);
}

/* In a child of its own, so that nothing stays. */
#define TRY(word, call)                                                                                                \
	do {                                                                                                           \
		pid_t child = fork();                                                                                  \
		if (child == 0) {                                                                                      \
			report(word, (long)(call));                                                                    \
			_exit(0);                                                                                      \
		}                                                                                                      \
		report_signal(word, child);                                                                            \
	} while (0)

static long cloned(unsigned long flags)
{
	long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (child == 0)
		_exit(0);
	return child;
}

static long traced(uid_t uid)
{
	pid_t child = fork();
	long result;
	int kept;

	if (child == 0) {
		if (uid != 0 && setuid(uid) != 0)
			_exit(1);
		prctl(PR_SET_DUMPABLE, 1);
		pause();
	}
	/* Until it is somebody else, or has not managed to. */
	for (struct stat status; uid != 0;) {
		char path[64];

		snprintf(path, sizeof(path), "/proc/%d", child);
		if (stat(path, &status) != 0 || status.st_uid == uid)
			break;
		sched_yield();
	}
	result = ptrace(PTRACE_ATTACH, child, 0, 0);
	kept = errno;
	kill(child, SIGKILL);
	waitpid(child, NULL, __WALL);
	errno = kept;
	return result;
}

static long opened_device(void)
{
	if (mknod("/mem", S_IFCHR | 0600, makedev(1, 1)) != 0)
		return -1;
	return open("/mem", O_RDONLY);
}

/* 0: one of the files was opened for writing; nothing is written. */
static long opened_for_writing(const char *pattern)
{
	glob_t found = {0};
	int result = -1, kept = ENOENT;

	if (glob(pattern, 0, NULL, &found) != 0)
		found.gl_pathc = 0;
	for (size_t i = 0; i < found.gl_pathc && result < 0; i++) {
		result = open(found.gl_pathv[i], O_WRONLY);
		kept = errno;
	}
	errno = kept;
	return result;
}

typedef ssize_t moving(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long, unsigned long);

/* One byte of an own child's memory. */
static long moved(moving *move)
{
	static char byte;
	struct iovec place = {&byte, 1};
	pid_t child = fork();
	long result;
	int kept;

	if (child == 0)
		for (;;)
			pause();
	result = move(child, &place, 1, &place, 1, 0);
	kept = errno;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	errno = kept;
	return result;
}

struct mount_request {
	uint32_t size, spare;
	uint64_t mount, parameter;
};

static long mounts_listed(uint64_t *first)
{
	struct mount_request request = {sizeof(request), 0, ROOT_OF_MOUNTS, 0};

	return syscall(LISTMOUNT, &request, first, 1, 0);
}

static long mount_looked_at(void)
{
	uint64_t buffer[512], first = 0;
	struct mount_request request = {sizeof(request), 0, 0, 1}; /* STATMOUNT_SB_BASIC */

	if (mounts_listed(&first) < 0)
		return -1;
	request.mount = first;
	return syscall(STATMOUNT, &request, buffer, sizeof(buffer), 0);
}

#ifdef __x86_64__
/* getpid(2) of the 32-bit ABI. */
static long called_as_32_bit(void)
{
	long result = 20;

	prctl(PR_SET_DUMPABLE, 0);
	__asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
	return result < 0 ? -1 : 0;
}

static long called_as_x32(void)
{
	prctl(PR_SET_DUMPABLE, 0);
	return syscall(X32_BIT | SYS_getpid);
}
#endif

int main(void)
{
	struct timespec now = {0};
	struct timeval no_time = {0, -1};
	uint64_t first;

	clock_gettime(CLOCK_REALTIME, &now);
	TRY("keyctl", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0, 0, 0));
	TRY("add_key", syscall(SYS_add_key, 0, 0, 0, 0, 0));
	TRY("request_key", syscall(SYS_request_key, 0, 0, 0, 0));
	TRY("userfaultfd", syscall(SYS_userfaultfd, -1));
	TRY("io_uring_setup", syscall(SYS_io_uring_setup, 0, 0));
	TRY("io_uring_enter", syscall(SYS_io_uring_enter, NO_FD, 0, 0, 0, 0, 0));
	TRY("io_uring_register", syscall(SYS_io_uring_register, NO_FD, 0, 0, 0));
	TRY("ptrace-other", traced(1000));
	TRY("ptrace-own", traced(0));
	TRY("process_vm_readv-own", moved(process_vm_readv));
	TRY("process_vm_writev-own", moved(process_vm_writev));
	TRY("pidfd_getfd", syscall(PIDFD_GETFD, NO_FD, NO_FD, 0));
	TRY("process_madvise", syscall(PROCESS_MADVISE, NO_FD, 0, 0, -1, 0));
	TRY("unshare-user", syscall(SYS_unshare, CLONE_NEWUSER));
	TRY("unshare-mount", syscall(SYS_unshare, CLONE_NEWNS));
	TRY("setns", syscall(SYS_setns, NO_FD, 0));
	TRY("clone-user", cloned(CLONE_NEWUSER));
	TRY("clone-mount", cloned(CLONE_NEWNS));
	TRY("clone-user-net", cloned(CLONE_NEWUSER | CLONE_NEWNET));
	TRY("clone-plain", cloned(0));
	TRY("clone3", syscall(SYS_clone3, 0, 0));
	TRY("mount", mount("none", "/", "tmpfs", 0, ""));
	TRY("umount", umount2("/proc", MNT_DETACH));
	TRY("mount-cgroup", mount("none", "/", "cgroup", 0, "no-such-controller"));
	TRY("fsmount", syscall(SYS_fsmount, NO_FD, 0, 0));
	TRY("mount_setattr", syscall(MOUNT_SETATTR, NO_FD, "", ~0, 0, 0));
	TRY("fsopen", syscall(SYS_fsopen, "no-such-file-system", 0));
	TRY("open_tree", syscall(SYS_open_tree, NO_FD, 0, 0));
	TRY("move_mount", syscall(SYS_move_mount, NO_FD, 0, NO_FD, 0, 0));
	TRY("pivot_root", syscall(SYS_pivot_root, 0, 0));
	TRY("chroot", chroot("/"));
	TRY("device", opened_device());
	TRY("sysrq-trigger", opened_for_writing("/proc/sysrq-trigger"));
	TRY("core_pattern", opened_for_writing("/proc/sys/kernel/core_pattern"));
	TRY("modprobe", opened_for_writing("/proc/sys/kernel/modprobe"));
	TRY("uevent_helper", opened_for_writing("/sys/kernel/uevent_helper"));
	TRY("release_agent-v1", opened_for_writing("/sys/fs/cgroup/*/release_agent"));
	TRY("release_agent", opened_for_writing("/sys/fs/cgroup/release_agent"));
	TRY("notify_on_release", opened_for_writing("/sys/fs/cgroup/*/notify_on_release"));
	TRY("cgroup.procs-v1", opened_for_writing("/sys/fs/cgroup/*/cgroup.procs"));
	TRY("cgroup.procs", opened_for_writing("/sys/fs/cgroup/cgroup.procs"));
	TRY("bpf", syscall(SYS_bpf, -1, 0, 0));
	TRY("perf_event_open", syscall(SYS_perf_event_open, 0, 0, 0, 0, 0));
	TRY("kexec_load", syscall(SYS_kexec_load, 0, ~0UL, 0, ~0UL));
	TRY("kexec_file_load", syscall(SYS_kexec_file_load, NO_FD, NO_FD, 0, 0, ~0UL));
	TRY("init_module", syscall(SYS_init_module, 0, 0, 0));
	TRY("finit_module", syscall(SYS_finit_module, NO_FD, 0, 0));
	TRY("delete_module", syscall(SYS_delete_module, 0, 0));
	TRY("open_by_handle_at", syscall(SYS_open_by_handle_at, NO_FD, 0, 0));
	TRY("reboot", syscall(SYS_reboot, 0, 0, 0, 0));
	TRY("swapon", syscall(SYS_swapon, 0, 0));
	TRY("swapoff", syscall(SYS_swapoff, 0));
	TRY("acct", syscall(SYS_acct, "/no/such/file"));
	TRY("quotactl", syscall(SYS_quotactl, ~0, 0, 0, 0));
	TRY("fanotify_init", syscall(SYS_fanotify_init, ~0, 0));
	TRY("settimeofday", syscall(SYS_settimeofday, &no_time, 0));
	TRY("clock_settime", syscall(SYS_clock_settime, ~0, &now));
	TRY("sethostname", syscall(SYS_sethostname, "x", -1));
	TRY("setdomainname", syscall(SYS_setdomainname, "x", -1));
	TRY("lsm_get_self_attr", syscall(LSM_GET_SELF_ATTR, 0, 0, 0, ~0));
	TRY("lsm_set_self_attr", syscall(LSM_SET_SELF_ATTR, 0, 0, 0, ~0));
	TRY("lsm_list_modules", syscall(LSM_LIST_MODULES, 0, 0, ~0));
	TRY("listmount", mounts_listed(&first));
	TRY("statmount", mount_looked_at());
	TRY("syslog", syscall(SYS_syslog, 10, 0, 0));
	TRY("kcmp", syscall(SYS_kcmp, getpid(), getpid(), -1, 0, 0));
	TRY("mbind", syscall(SYS_mbind, 0, 0, ~0, 0, 0, ~0));
	TRY("set_mempolicy", syscall(SYS_set_mempolicy, ~0, 0, 0));
	TRY("get_mempolicy", syscall(SYS_get_mempolicy, 0, 0, 0, 0, ~0UL));
	TRY("migrate_pages", syscall(SYS_migrate_pages, -1, 0, 0, 0));
	TRY("vhangup", setsid() < 0 ? -1 : syscall(SYS_vhangup));
#ifdef __x86_64__
	TRY("iopl", syscall(SYS_iopl, ~0));
	TRY("ioperm", syscall(SYS_ioperm, ~0UL, 1, 1));
	TRY("32-bit", called_as_32_bit());
	TRY("x32", called_as_x32());
#endif
	TRY("move_pages", syscall(SYS_move_pages, 0, 0, 0, 0, 0, 0));
	TRY("personality-ask", syscall(SYS_personality, 0xffffffffUL));
	TRY("personality-fixed", syscall(SYS_personality, (unsigned long)ADDR_NO_RANDOMIZE));
	TRY("socket-inet", syscall(SYS_socket, 2, 1, 0));
	TRY("socket-unix", syscall(SYS_socket, 1, 1, 0));
	TRY("socket-alg", syscall(SYS_socket, 38, 5, 0));
	TRY("socket-vsock", syscall(SYS_socket, 40, 1, 0));
	TRY("later", syscall(A_LATER_CALL, 0));
	return 0;
}

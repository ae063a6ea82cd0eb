/*
 * What a program in a container tries, one line each: a word and the errno it got, 0 for none. Nothing here can harm a
 * machine that lets it through: arguments are such that the kernel refuses them, or what they make ends with the child
 * that made it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NO_FD (-1)
#define A_LATER_CALL 999
#define ADDR_NO_RANDOMIZE 0x40000

static void report(const char *word, long result)
{
	printf("%s %d\n", word, result < 0 ? errno : 0);
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
		waitpid(child, NULL, 0);                                                                               \
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

static long asked_for_this_boot(void)
{
	return open("/proc/sysrq-trigger", O_WRONLY);
}

int main(void)
{
	struct timespec now = {0};

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
	TRY("fsopen", syscall(SYS_fsopen, "no-such-file-system", 0));
	TRY("open_tree", syscall(SYS_open_tree, NO_FD, 0, 0));
	TRY("move_mount", syscall(SYS_move_mount, NO_FD, 0, NO_FD, 0, 0));
	TRY("pivot_root", syscall(SYS_pivot_root, 0, 0));
	TRY("chroot", chroot("/"));
	TRY("device", opened_device());
	TRY("sysrq-trigger", asked_for_this_boot());
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
	TRY("clock_settime", syscall(SYS_clock_settime, ~0, &now));
	TRY("sethostname", syscall(SYS_sethostname, "x", -1));
	TRY("syslog", syscall(SYS_syslog, 10, 0, 0));
	TRY("kcmp", syscall(SYS_kcmp, getpid(), getpid(), -1, 0, 0));
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

/* Kernel constants that the libc's headers lack: musl-gcc on Debian sees no <linux/...> headers. Numbers are ABI. */
#ifndef EXITD_KERNEL_H
#define EXITD_KERNEL_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#ifndef SYS_fsopen
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#endif

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* Nothing that the starter forgot to close goes on to a container. Linux 5.9; before that the starter's care
 * has to do. */
static inline void close_from(unsigned int fd)
{
	syscall(SYS_close_range, fd, ~0u, 0);
}

static inline int pidfd_open_raw(int pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* Of pidfd_open(2), and of a file in /proc: there is no such process. Of a thread's id older kernels say EINVAL, newer ones
 * ENOENT. Anything else (EMFILE, ENFILE, ENOMEM, EIO) says nothing about the process. */
static inline int no_such_process(int error)
{
	return error == -ESRCH || error == -ENOENT || error == -EINVAL;
}

static inline int pidfd_signal(int pidfd, int number)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0);
}

/* The default action for a signal, for those too that the libc keeps to itself: some posix_spawn leaves 32 and 33 ignored
 * in its child (that of glibc, as make uses it), and signal() refuses to mend them. Zero is SIG_DFL, no flags, no mask. */
static inline void signal_default(int number)
{
	unsigned long action[4] = { 0 };

	syscall(SYS_rt_sigaction, number, action, NULL, sizeof(uint64_t));
}

/* Of fsopen(2), fsconfig(2) and fsmount(2), Linux 5.2. */
#define FSOPEN_CLOEXEC_NUMBER 1
#define FSCONFIG_SET_STRING_NUMBER 1
#define FSCONFIG_CMD_CREATE_NUMBER 6
#define FSMOUNT_CLOEXEC_NUMBER 1
#define MOUNT_ATTR_NOTHING_RUNS (0x2 | 0x4 | 0x8)	/* nosuid, nodev, noexec */

/* Of field 9 of /proc/PID/stat: forked, and has not executed a program since. A zombie keeps it. */
#define PF_FORKNOEXEC_BIT 0x40
#define PF_EXITING_BIT 0x4

/* Of statfs(2): the file system that namespaces are on. */
#define NSFS_MAGIC_NUMBER 0x6e736673

/* PIDFD_GET_INFO, first version of its struct (64 bytes), and the exit bit that came with Linux 6.15. */
struct pidfd_info_v0 {
	uint64_t mask;
	uint64_t cgroup_id;
	uint32_t ids[11];
	int32_t exit_status;
};
#define PIDFD_GET_INFO_V0 _IOWR(0xFF, 11, struct pidfd_info_v0)
#define PIDFD_INFO_EXIT_BIT (1ull << 3)

#endif

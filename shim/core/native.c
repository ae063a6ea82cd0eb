/* The one door to kernel calls that Python's standard library lacks; part of the extension only. */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core.h"
#include "kernel.h"

int exitd_mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data)
{
	return mount(source, target, type, flags, data) ? -errno : 0;
}

int exitd_unmount(const char *target, int flags)
{
	return umount2(target, flags) ? -errno : 0;
}

int exitd_set_subreaper(int on)
{
	return prctl(PR_SET_CHILD_SUBREAPER, on, 0, 0, 0) ? -errno : 0;
}

/* The kind of file system that this file is on, as statfs(2) numbers them: 32 bits. O_PATH will do. */
int64_t exitd_file_system(int fd)
{
	struct statfs found;

	return fstatfs(fd, &found) ? -errno : (int64_t)(uint32_t)found.f_type;
}

/* In the calling thread's network namespace, netdevice(7). */
static int loopback_up(void)
{
	struct ifreq lo;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), result = 0;

	if (fd < 0)
		return -errno;
	memset(&lo, 0, sizeof lo);
	strcpy(lo.ifr_name, "lo");
	lo.ifr_flags = IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
		result = -errno;
	close(fd);
	return result;
}

/* Make a network namespace whose loopback interface is up, and bind it at this empty file, network_namespaces(7). Only the
 * calling thread is in it for a moment; a thread that could not come back would do the daemon's work in the container's
 * network, so the process ends then. */
int exitd_bind_network(const char *path)
{
	int own_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC), result;

	if (own_fd < 0)
		return -errno;
	if (unshare(CLONE_NEWNET)) {
		result = -errno;
		close(own_fd);
		return result;
	}
	result = loopback_up();
	if (!result && mount("/proc/thread-self/ns/net", path, NULL, MS_BIND, NULL))
		result = -errno;
	if (setns(own_fd, CLONE_NEWNET))
		abort();
	close(own_fd);
	return result;
}

/* Write the whole map of a user namespace, user_namespaces(7). */
static int write_map(pid_t pid, const char *file, uint32_t first, uint32_t count)
{
	char path[64], line[64];
	int length = snprintf(line, sizeof line, "0 %u %u\n", first, count), fd, result = 0;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, line, (size_t)length) != length)
		result = -errno;
	close(fd);
	return result;
}

static int open_namespace(pid_t pid, const char *kind)
{
	char path[64];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, kind);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Its loopback interface, by a short stay of the calling thread, as in exitd_bind_network. */
static int loopback_up_in(int network_fd)
{
	int own_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC), result;

	if (own_fd < 0)
		return -errno;
	if (setns(network_fd, CLONE_NEWNET)) {
		result = -errno;
		close(own_fd);
		return result;
	}
	result = loopback_up();
	if (setns(own_fd, CLONE_NEWNET))
		abort();
	close(own_fd);
	return result;
}

/* What the namespaces' first process is for: it holds them until its parent, which has opened them, kills it, or has died. It
 * has a copy of this process, of which only one thread goes on: nothing but system calls. It keeps no descriptor: another
 * thread's pipe would wait for it, and so would the daemon's lock. */
static void hold(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != parent)
		_exit(0);
	close_from(0);
	for (;;)
		pause();
}

/* Its parent's handlers are not for the child: it begins with all signals blocked, and only SIGKILL ends it. It has no signal
 * for its end: no handler of SIGCHLD sees it, and only a wait with __WALL. */
static pid_t clone_held(unsigned long flags)
{
	pid_t parent = getpid(), pid;
	sigset_t every, before;
	int error;

	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
	if (pid == 0)
		hold(parent);
	error = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return pid < 0 ? -error : pid;
}

static int open_both(pid_t pid, uint32_t first, uint32_t count, int *network_fd)
{
	int result = write_map(pid, "gid_map", first, count), user_fd;

	if (!result)
		result = write_map(pid, "uid_map", first, count);
	if (result)
		return result;
	user_fd = open_namespace(pid, "user");
	if (user_fd < 0 || !network_fd)
		return user_fd;
	*network_fd = open_namespace(pid, "net");
	result = *network_fd < 0 ? *network_fd : loopback_up_in(*network_fd);
	if (!result)
		return user_fd;
	if (*network_fd >= 0)
		close(*network_fd);
	close(user_fd);
	return result;
}

/* Make a user namespace in which 0 to count - 1 are the users and groups from `first` on; return its descriptor, or -errno.
 * With `network_fd`, also a network namespace that belongs to it, with its loopback interface up. Only a process of one thread
 * can be in a new user namespace, so a child is. Until it is waited for, its pid is its own. */
int exitd_user_namespace(uint32_t first, uint32_t count, int *network_fd)
{
	pid_t pid = clone_held(CLONE_NEWUSER | (network_fd ? CLONE_NEWNET : 0));
	siginfo_t info;
	int result;

	if (pid < 0)
		return pid;
	result = open_both(pid, first, count, network_fd);
	kill(pid, SIGKILL);
	while (waitid(P_PID, (id_t)pid, &info, WEXITED | __WALL) < 0 && errno == EINTR)
		;
	return result;
}

/* struct mount_attr, mount_setattr(2): libraries before glibc 2.36 lack it. */
struct idmap_attr {
	uint64_t set, clear, propagation, userns_fd;
};

enum {
	OPEN_TREE_NUMBER = 428,
	MOUNT_SETATTR_NUMBER = 442,	/* on every architecture but alpha */
	TREE_CLONE = 1,
	IDMAP = 0x100000,
};

/* A mount of this directory that is mounted nowhere, with the owners of its files as the user namespace maps them. Return its
 * descriptor, or -errno: EINVAL where the file system cannot do that. */
int exitd_mapped_tree(const char *path, int user_fd)
{
	struct idmap_attr attr = {.set = IDMAP, .userns_fd = (uint64_t)user_fd};
	int fd = (int)syscall(OPEN_TREE_NUMBER, AT_FDCWD, path, TREE_CLONE | O_CLOEXEC), result;

	if (fd < 0)
		return -errno;
	if (!syscall(MOUNT_SETATTR_NUMBER, fd, "", AT_EMPTY_PATH, &attr, sizeof attr))
		return fd;
	result = -errno;
	close(fd);
	return result;
}

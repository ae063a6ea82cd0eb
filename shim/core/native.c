/* The one door to kernel calls that Python's standard library lacks; part of the extension only. */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core.h"

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

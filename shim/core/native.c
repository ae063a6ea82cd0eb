/* The one door to kernel calls that Python's standard library lacks; part of the extension only. */
#include <errno.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/vfs.h>

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

/* 0 and the wait status of a process that has ended and been reaped, while somebody held this pidfd; -EAGAIN when it
 * has not been reaped, -ENOTTY or -EINVAL when the kernel (before 6.15) does not know the question. */
int exitd_pidfd_exit_status(int pidfd, int *wait_status)
{
	struct pidfd_info_v0 info = { .mask = PIDFD_INFO_EXIT_BIT };

	if (ioctl(pidfd, PIDFD_GET_INFO_V0, &info))
		return -errno;
	if (!(info.mask & PIDFD_INFO_EXIT_BIT))
		return -EAGAIN;
	*wait_status = info.exit_status;
	return 0;
}

/* The kind of file system that this file is on, as statfs(2) numbers them: 32 bits. O_PATH will do. */
int64_t exitd_file_system(int fd)
{
	struct statfs found;

	return fstatfs(fd, &found) ? -errno : (int64_t)(uint32_t)found.f_type;
}

/* The one door to kernel calls that Python's standard library lacks; part of the extension only. */
#include <errno.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/vfs.h>

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

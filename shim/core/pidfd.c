/* What the kernel keeps of a process for the holder of its pidfd. */
#include <errno.h>

#include "core.h"
#include "kernel.h"

static int ask(int pidfd, struct pidfd_info_v0 *info)
{
	info->mask = PIDFD_INFO_EXIT_BIT;
	return ioctl(pidfd, PIDFD_GET_INFO_V0, info) ? -errno : 0;
}

/* 0 and the wait status of a process that has ended and been reaped, while this pidfd was held; -EAGAIN when it
 * has not been reaped, -ENOTTY or -EINVAL when the kernel (before 6.15) does not know the question. */
int exitd_pidfd_exit_status(int pidfd, int *wait_status)
{
	struct pidfd_info_v0 info = { 0 };
	int error = ask(pidfd, &info);

	/* The kernel (pidfd_info() in fs/pidfs.c) looks for the status first, and then for the process, which may have been
	 * reaped in between. The status is there by then. */
	if (error == -ESRCH)
		error = ask(pidfd, &info);
	if (error)
		return error;
	if (!(info.mask & PIDFD_INFO_EXIT_BIT))
		return -EAGAIN;
	*wait_status = info.exit_status;
	return 0;
}

/* What the kernel keeps of a process for whoever holds its pidfd. */
#include <errno.h>

#include "core.h"
#include "kernel.h"

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

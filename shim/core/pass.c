/* A message, and with it a descriptor. */
#include <string.h>
#include <sys/socket.h>

#include "core.h"

/* One message of fields with at most one descriptor (-1: none). What was sent, or -1; -1 also for a `size` below 0, a
 * message that did not fit its writer. */
ssize_t pass(int to, const char *text, int size, int fd, int flags)
{
	union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int))]; } control;
	struct iovec data = { .iov_base = (void *)text, .iov_len = (size_t)size };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };

	if (fd >= 0) {
		memset(&control, 0, sizeof control);
		message.msg_control = &control;
		message.msg_controllen = sizeof control.space;
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	}
	return size < 0 ? -1 : sendmsg(to, &message, MSG_NOSIGNAL | flags);
}

/* A message, and with it descriptors. */
#include <string.h>
#include <sys/socket.h>

#include "core.h"

/* One message of fields with `count` descriptors, PASSED_MAX at most. What was sent, or -1; -1 also for a `size` below 0, a
 * message that did not fit its writer. */
ssize_t pass_all(int to, const char *text, int size, const int *fds, int count, int flags)
{
	union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int) * PASSED_MAX)]; } control;
	struct iovec data = { .iov_base = (void *)text, .iov_len = (size_t)size };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
	size_t bytes = sizeof(int) * (size_t)count;

	if (count > PASSED_MAX || size < 0)
		return -1;
	if (count) {
		memset(&control, 0, sizeof control);
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(bytes);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(&control.header), fds, bytes);
	}
	return sendmsg(to, &message, MSG_NOSIGNAL | flags);
}

/* The same with at most one: -1 for none. */
ssize_t pass(int to, const char *text, int size, int fd, int flags)
{
	return pass_all(to, text, size, &fd, fd >= 0, flags);
}

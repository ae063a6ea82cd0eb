/* Messages between two processes: a socket to listen at, and one message with the descriptors that go with it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core.h"

/* Listens at `path`, relative to the working directory, in the place of whatever is there; for this user alone. Returns the
 * descriptor, which does not block, or -errno. */
int message_listen(const char *path, int type, int backlog)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
	mode_t mask = umask(0177);

	strncpy(address.sun_path, path, sizeof address.sun_path - 1);
	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, backlog))
		error = -errno;
	umask(mask);
	if (error && fd >= 0)
		close(fd);
	return error ? error : fd;
}

/* Sends one message of fields with `count` descriptors, PASSED_MAX at most. Returns 0 or -errno; -EMSGSIZE for a `size` below
 * 0, which is a message that did not fit its writer. */
int message_send_all(int to, const char *text, int size, const int *fds, int count, int flags)
{
	union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int) * PASSED_MAX)]; } control;
	struct iovec data = { .iov_base = (void *)text, .iov_len = (size_t)size };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
	size_t bytes = sizeof(int) * (size_t)count;

	if (count > PASSED_MAX || size < 0)
		return -EMSGSIZE;
	if (count) {
		memset(&control, 0, sizeof control);
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(bytes);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(&control.header), fds, bytes);
	}
	return sendmsg(to, &message, MSG_NOSIGNAL | flags) < 0 ? -errno : 0;
}

/* The same with at most one descriptor; -1 for none. */
int message_send(int to, const char *text, int size, int fd, int flags)
{
	return message_send_all(to, text, size, &fd, fd >= 0, flags);
}

/* Takes one descriptor, moved to `lowest_fd` or above where that is not 0. */
static void take(struct passed *out, int most_fds, int lowest_fd, int fd)
{
	int moved = lowest_fd ? fcntl(fd, F_DUPFD_CLOEXEC, lowest_fd) : fd;

	if (lowest_fd)
		close(fd);
	if (moved < 0 || out->count == most_fds)
		out->error = moved < 0 ? -EMFILE : -EMSGSIZE;
	if (moved >= 0 && out->count < most_fds)
		out->fds[out->count++] = moved;
	else if (moved >= 0)
		close(moved);
}

/* Receives one message, and the descriptors with it: `most_fds` of them, SLOT_COUNT at most, which are the caller's also when
 * `out->error` says that not all came through. They are closed by an exec, and lie at `lowest_fd` or above (0: anywhere). Never
 * waits. Returns the text's size, 0 when the peer has gone, or -errno. */
ssize_t message_receive(int from, char *text, size_t size, int most_fds, int lowest_fd, struct passed *out)
{
	union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int) * SLOT_COUNT)]; } control;
	struct iovec data = { .iov_base = text, .iov_len = size };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)most_fds) };
	ssize_t got = recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int fd;

	out->count = out->error = 0;
	if (got <= 0)
		return got < 0 ? -errno : 0;
	if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		out->error = -EMSGSIZE;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
		for (size_t at = CMSG_LEN(0); c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && at < c->cmsg_len;
		     at += sizeof fd) {
			memcpy(&fd, (char *)c + at, sizeof fd);
			take(out, most_fds, lowest_fd, fd);
		}
	/* Fewer came than there was room for: the message was not too long, this process has no descriptor left. */
	if (out->error && !(message.msg_flags & MSG_TRUNC) && out->count < most_fds)
		out->error = -EMFILE;
	return got;
}

void message_close(struct passed *passed)
{
	for (int i = 0; i < passed->count; i++)
		close(passed->fds[i]);
	passed->count = 0;
}

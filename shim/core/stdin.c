/* Input, from clients' pipes to the container's, or to the master of its tty; only as much as there is room for. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "shim.h"

/* This client has no more, or is not to be read any more; the container's stdin stays as it is. */
void stdin_drop(struct input *in)
{
	if (in->fd >= 0)
		close(in->fd);
	in->fd = -1;
	in->due = 0;
}

/* For good: the container reads an end of file, or does not read at all. With a tty there is no such end. */
void stdin_end(struct shim *shim)
{
	struct streams *s = &shim->streams;

	if (s->in_fd >= 0 && s->master_fd < 0) {
		close(s->in_fd);
		heir_release(shim);
	}
	s->in_fd = -1;
	s->in_closing = 0;
	stdin_drop(&s->in_from);
	for (int i = 0; i < s->client_count; i++)
		stdin_drop(&s->client[i].in);
}

void stdin_move(struct shim *shim, struct input *in)
{
	struct streams *s = &shim->streams;
	ssize_t got;

	if (in->fd < 0 || s->in_fd < 0)
		return;
	got = splice(in->fd, NULL, s->in_fd, NULL, BATCH_MAX, SPLICE_F_NONBLOCK);
	if (got > 0) {
		in->bytes += (uint64_t)got;
		s->in_bytes += (uint64_t)got;
		in->due -= in->due < (uint64_t)got ? in->due : (uint64_t)got;
	} else if (!got && in == &s->in_from && shim->plan.isulad && s->master_fd < 0) {
		stdin_end(shim);
	} else if (!got) {
		stdin_drop(in);
	} else if (errno == EAGAIN || errno == EINTR) {
		/* Nothing to read, or no room to write: the loop waits for room first, then for something to read. */
		s->in_full = 1;
	} else {
		stdin_end(shim);
	}
}

static uint64_t waiting(struct input *in)
{
	int left = 0;

	if (in->fd < 0 || ioctl(in->fd, FIONREAD, &left) || left < 0)
		return 0;
	return in->due = (uint64_t)left;
}

/* Behind what clients have sent by now. 0, or -errno. */
int stdin_close(struct shim *shim)
{
	struct streams *s = &shim->streams;

	if (s->master_fd >= 0)
		return -ENOTTY;
	if (s->in_fd < 0)
		return -EPIPE;
	s->in_closing = 1;
	waiting(&s->in_from);
	for (int i = 0; i < s->client_count; i++)
		waiting(&s->client[i].in);
	return 0;
}

/* Closes what was asked to be closed, once what was on its way has arrived. */
void stdin_settle(struct shim *shim)
{
	struct streams *s = &shim->streams;
	uint64_t due = s->in_from.due;

	for (int i = 0; i < s->client_count; i++)
		due += s->client[i].in.due;
	if (s->in_closing && !due)
		stdin_end(shim);
}

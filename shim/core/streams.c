/* All of one container's streams: opened as the plan says, one batch moved at a time, closed at the end. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

/* Both ends of a client's fifo, or -errno: neither is the container hurt by a client that goes, nor does one that comes
 * back find its fifo at its end. A file is appended to. Of iSulad's clients one end, and those that are not there are
 * passed over. */
static int open_fifo(const struct shim *shim, const char *path, int mode, int *fd)
{
	if (!*path)
		return 0;
	if (shim->plan.isulad) {
		*fd = clients_fifo(path, mode);
		return 0;
	}
	*fd = open(path, O_RDWR | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	return *fd < 0 ? -errno : 0;
}

/* Before anything is made; a replacement goes on without what is no more. 0 or -errno. */
int streams_open(struct shim *shim)
{
	struct streams *s = &shim->streams;
	const struct plan *plan = &shim->plan;
	int drop = !strcmp(plan->log_mode, "non-blocking"), error;

	s->source[0].name = "stdout";
	s->source[1].name = "stderr";
	s->log[0] = (struct logfile){ .path = plan->log, .frame = crilog_frame, .fd = -1 };
	s->log[1] = (struct logfile){ .path = plan->json_log, .frame = jsonlog_frame, .carries = 1, .fd = -1 };
	s->source[0].sink = s->source[1].sink = (struct sink){ .fd = -1, .drop = drop };
	clients_begin(s);
	s->in_from.fd = s->master_fd = s->slave_fd = s->console_fd = s->logger_fd = -1;
	stage_setup(shim);
	error = open_fifo(shim, plan->sink_out, O_WRONLY, &s->source[0].sink.fd);
	if (!error)
		error = open_fifo(shim, plan->sink_err, O_WRONLY, &s->source[1].sink.fd);
	if (!error)
		error = open_fifo(shim, plan->in_from, O_RDONLY, &s->in_from.fd);
	if (plan->tty && shim->adopted)
		console_use(shim, OUT_FD);
	/* What is written before another's shim opens its end must find a reader; it waits for that one. */
	if (plan->follow && s->in_fd >= 0)
		s->in_read_fd = open("stdin", O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	return shim->adopted ? 0 : error;
}

/* A batch to everybody who wants it. */
static void deliver(struct shim *shim, int which, const char *data, size_t size)
{
	struct streams *s = &shim->streams;
	struct source *source = &s->source[which];
	int moved = 0;

	for (int i = 0; i < 2; i++) {
		logfile_open(&s->log[i]);
		moved |= logfile_make_room(shim, &s->log[i], source, data, size);
	}
	if (moved)
		stage_intend(shim, which);
	source->bytes += size;
	logfile_put(shim, &s->log[0], source, data, size);
	if (*s->log[1].path) {
		size_t carried = source->carried;

		/* There is room for it before every batch. */
		memcpy((char *)data - carried, source->carry, carried);
		logfile_put(shim, &s->log[1], source, data - carried, size + carried);
	}
	sink_put(shim, &source->sink, data, size);
	for (int i = 0; i < s->client_count; i++)
		sink_put(shim, &s->client[i].sink[which], data, size);
	stage_done(shim, size);
}

/* One batch. 1: moved, 0: nothing there now, -1: the stream has ended. */
int streams_move(struct shim *shim, int which)
{
	const char *data;
	ssize_t got = stage_fill(shim, which, &data);

	if (got > 0)
		deliver(shim, which, data, (size_t)got);
	return got > 0 ? 1 : (int)got;
}

/* What was the begin of a character was none. */
void streams_end_source(struct shim *shim, struct source *source)
{
	if (source->carried)
		logfile_put(shim, &shim->streams.log[1], source, "\xff", 1);
	close(source->fd);
	if (source->fd == shim->streams.master_fd) {
		stdin_end(shim);
		shim->streams.master_fd = -1;
	}
	source->fd = -1;
}

/* When the container is made and reported. */
void streams_begin(struct shim *shim)
{
	struct streams *s = &shim->streams;
	const char *data;
	ssize_t got;
	int which;

	if (s->begun)
		return;
	s->begun = 1;
	if (shim->plan.hold_ms && (shim->plan.follow || !shim->adopted))
		s->hold_until_ns = now_ns(CLOCK_MONOTONIC) + (int64_t)shim->plan.hold_ms * 1000000;
	for (int i = 0; i < 2; i++)
		logfile_open(&s->log[i]);
	got = shim->adopted ? stage_recover(shim, &which, &data) : 0;
	if (got > 0)
		deliver(shim, which, data, (size_t)got);
}

/* Whether this stream is not to be read now: it is held, or someone who must have all of it has no room. */
bool streams_wait(const struct shim *shim, int which)
{
	const struct streams *s = &shim->streams;
	bool wait = s->hold_until_ns > 0 || sink_holds_up(shim, &s->source[which].sink);

	for (int i = 0; i < s->client_count && !wait; i++)
		wait = sink_holds_up(shim, &s->client[i].sink[which]);
	return wait;
}

/* Whether there is or may be output that has not arrived. */
bool streams_busy(const struct shim *shim)
{
	const struct streams *s = &shim->streams;
	bool busy = s->source[0].fd >= 0 || s->source[1].fd >= 0 || s->source[0].sink.used || s->source[1].sink.used;

	for (int i = 0; i < s->client_count && !busy; i++)
		busy = s->client[i].sink[0].used || s->client[i].sink[1].used;
	return busy;
}

/* Whether a client's fifo, open at both ends here, has bytes that the client has not read. */
bool streams_unread(const struct shim *shim)
{
	int ours = !shim->plan.isulad && shim->streams.logger_fd < 0, unread = 0;

	for (int i = 0; i < 2 && ours; i++) {
		int fd = shim->streams.source[i].sink.fd, size = 0;
		struct stat found;

		if (fd >= 0 && !fstat(fd, &found) && S_ISFIFO(found.st_mode) && !ioctl(fd, FIONREAD, &size))
			unread |= size > 0;
	}
	return unread;
}

/* What held a stream up does so no more: what is in the pipes still goes to the log. */
void streams_close(struct shim *shim)
{
	struct streams *s = &shim->streams;

	for (int which = 0; which < 2; which++) {
		struct source *source = &s->source[which];

		source->sink.drop = 1;
		for (int i = 0; i < s->client_count; i++)
			s->client[i].sink[which].drop = 1;
		for (int i = 0; source->fd >= 0 && i < (1 << 20) / BATCH_MAX; i++)
			if (streams_move(shim, which) <= 0)
				break;
		if (source->fd >= 0)
			streams_end_source(shim, source);
		sink_close(shim, &source->sink);
	}
}

/* The memory that output took, back to the kernel until there is output again. */
void streams_give_back(struct shim *shim)
{
	if (!shim->streams.dirty)
		return;
	madvise(shim->in, sizeof shim->in, MADV_DONTNEED);
	madvise(shim->out, sizeof shim->out, MADV_DONTNEED);
	shim->streams.dirty = 0;
}

/* The container's output, from its pipes to its log, for as long as there is any. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

static char in[16384], out[32768];

/* O_NONBLOCK and O_NOCTTY: should it be a fifo or a terminal, it must neither stop us nor become ours. */
#define LOG_FLAGS (O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)

/* Only now, with the container made and told: making a file may take the time of a disk. A log that cannot be opened
 * costs the log, not the container; its bytes are counted as lost. */
static void open_log(struct shim *shim)
{
	char last = '\n';
	off_t end;

	if (*shim->plan.log && shim->log_fd < 0)
		shim->log_fd = open(shim->plan.log, LOG_FLAGS, 0640);
	if (shim->log_fd >= 0 && (end = lseek(shim->log_fd, 0, SEEK_END)) > 0)
		shim->torn = pread(shim->log_fd, &last, 1, end - 1) == 1 && last != '\n';
}

/* All of it or counted as lost: a full disk must not stop the container, nor end the pump. What a full disk or a kill
 * cut off within a line is ended first, or the next line would be read as its rest. */
static void write_log(struct shim *shim, const char *data, size_t size)
{
	if (shim->torn && write(shim->log_fd, "\n", 1) == 1)
		shim->torn = 0;
	if (shim->torn) {
		shim->lost += size;
		return;
	}
	while (size) {
		ssize_t put = shim->log_fd < 0 ? -1 : write(shim->log_fd, data, size);

		if (put < 0 && shim->log_fd >= 0 && errno == EINTR)
			continue;
		if (put <= 0) {
			shim->lost += size;
			return;
		}
		shim->torn = data[put - 1] != '\n';
		data += put;
		size -= (size_t)put;
	}
}

/* 1: something was moved, 0: nothing there now, -1: the stream has ended. */
static int move(struct shim *shim, int fd, const char *stream)
{
	char stamp[STAMP_SIZE];
	ssize_t got = read(fd, in, sizeof in);
	size_t at = 0, eaten;

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (!got)
		return -1;
	crilog_stamp(stamp, now_ns(CLOCK_REALTIME));
	while (at < (size_t)got) {
		size_t framed = crilog_frame(out, sizeof out, in + at, (size_t)got - at, &eaten, stamp, stream);

		write_log(shim, out, framed);
		at += eaten;
	}
	return 1;
}

static void on_ready(struct shim *shim, struct pollfd *p, const char *stream)
{
	if (p->fd >= 0 && p->revents && move(shim, p->fd, stream) < 0) {
		close(p->fd);
		p->fd = -1;
	}
}

/* How long poll may wait: for ever while init lives; after that until the drain limit, 0 when it has passed. */
static int patience(const struct shim *shim)
{
	int64_t left;

	if (!shim->ended)
		return -1;
	left = shim->ended_ns + (int64_t)shim->plan.drain_ms * 1000000 - now_ns(CLOCK_MONOTONIC);
	return left > 0 ? (int)(left / 1000000) + 1 : 0;
}

static void on_init(struct shim *shim, struct pollfd *p)
{
	if (!p->revents)
		return;
	p->fd = -1;
	shim->ended = 1;
	shim->ended_ns = now_ns(CLOCK_MONOTONIC);
}

/* Returns when init has ended; with `drain` when its output has ended too, or the drain limit has passed. */
void pump(struct shim *shim, int drain)
{
	struct signalfd_siginfo drop[8];
	struct pollfd p[4] = {
		{ .fd = shim->signal_fd, .events = POLLIN },
		{ .fd = shim->out_fd, .events = POLLIN },
		{ .fd = shim->err_fd, .events = POLLIN },
		/* Its own init a shim reaps; a replacement is told by the pidfd, which works for anybody. */
		{ .fd = shim->adopted && !shim->ended ? shim->init_fd : -1, .events = POLLIN },
	};

	reap(shim);
	open_log(shim);
	while (!shim->ended || (drain && (p[1].fd >= 0 || p[2].fd >= 0) && patience(shim))) {
		if (poll(p, 4, patience(shim)) < 0)
			continue;
		if (p[0].revents) {
			while (read(shim->signal_fd, drop, sizeof drop) > 0)
				;
			reap(shim);
		}
		on_ready(shim, &p[1], "stdout");
		on_ready(shim, &p[2], "stderr");
		on_init(shim, &p[3]);
	}
	shim->out_fd = p[1].fd;
	shim->err_fd = p[2].fd;
}

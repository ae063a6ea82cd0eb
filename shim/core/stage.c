/* One batch of output at a time. The bytes lie in the stage, a pipe that the keeper holds too, from before the first of
 * them is written until after the last; where the logs ended before is in the file `progress`. A shim that finds the stage
 * full cuts the logs back to there and does the batch again. Each of these calls is done whole or not at all, whenever
 * a SIGKILL comes: pwrite within a page, splice from pipe to pipe and to /dev/null. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

#define KIND "exitd-progress 1"

enum { PIECE_LEAST = 2048 };		/* of a terminal that has more */

/* The file `progress`, in this machine's own byte order: only a shim on it reads it again. */
struct intent {
	char kind[24];
	uint64_t which;			/* of the two streams */
	uint64_t log[2][3];		/* device, inode (0: no file), end */
	uint64_t counted[5];
	int64_t batch_ns;
};

/* All of it or none: a stage without its intent, or one that the scratch pipe cannot mirror, would lose bytes. */
void stage_setup(struct shim *shim)
{
	struct streams *s = &shim->streams;

	s->scratch_fd[0] = s->scratch_fd[1] = s->null_fd = s->progress_fd = -1;
	if (s->stage_read_fd < 0 || s->stage_write_fd < 0)
		goto none;
	s->progress_fd = open("progress", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	s->null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (s->progress_fd < 0 || s->null_fd < 0 || pipe2(s->scratch_fd, O_CLOEXEC | O_NONBLOCK))
		goto none;
	fcntl(s->scratch_fd[1], F_SETPIPE_SZ, fcntl(s->stage_read_fd, F_GETPIPE_SZ));
	if (fcntl(s->scratch_fd[1], F_GETPIPE_SZ) >= fcntl(s->stage_read_fd, F_GETPIPE_SZ))
		return;
none:
	s->stage_read_fd = -1;
}

static size_t batch_size(const struct shim *shim)
{
	uint64_t part = shim->plan.log_bytes / 16;

	/* Small beside a log that is rotated: a batch is never divided between two files. */
	return !part || part > BATCH_MAX ? BATCH_MAX : part < 4096 ? 4096 : part;
}

/* 0, or -1 and the batch must not go through the stage: an older intent would have the log cut too far. */
static int intend(struct shim *shim, int which)
{
	struct streams *s = &shim->streams;
	struct intent intent = { .kind = KIND, .which = (uint64_t)which, .batch_ns = s->batch_ns };
	uint64_t counted[5] = { s->source[0].bytes, s->source[1].bytes, s->in_bytes, s->lost, s->dropped };

	for (int i = 0; i < 2; i++)
		logfile_identify(&s->log[i], intent.log[i]);
	memcpy(intent.counted, counted, sizeof counted);
	return pwrite(s->progress_fd, &intent, sizeof intent, 0) == sizeof intent ? 0 : -1;
}

/* Between two files, nothing of the batch being written yet. */
void stage_intend(struct shim *shim, int which)
{
	if (shim->streams.stage_read_fd >= 0)
		intend(shim, which);
}

/* What is in the stage, by way of a copy: the stage keeps it. The count, 0 for none. */
static ssize_t copy(struct shim *shim)
{
	struct streams *s = &shim->streams;
	char *to = shim->in + CARRY_MAX;
	ssize_t staged = tee(s->stage_read_fd, s->scratch_fd[1], BATCH_MAX, SPLICE_F_NONBLOCK), at = 0, got;

	/* Packet by packet, should the container have made its pipe one of packets. */
	for (; at < staged; at += got) {
		got = read(s->scratch_fd[0], to + at, (size_t)(staged - at));
		if (got <= 0)
			break;
	}
	return at;
}

/* A terminal's output comes in pieces of a page at most, however much is asked for: as many as there are now are one batch,
 * so that the calls around it are made once for all of them. */
static ssize_t gather(struct shim *shim, int fd)
{
	size_t limit = batch_size(shim), size = 0;
	ssize_t got;

	do {
		got = splice(fd, NULL, shim->streams.stage_write_fd, NULL, limit - size, SPLICE_F_NONBLOCK);
		size += got > 0 ? (size_t)got : 0;
	} while (got >= PIECE_LEAST && size < limit && fd == shim->streams.master_fd);
	return size ? (ssize_t)size : got;
}

/* The next batch of a stream, at `*data`: its size, 0 when there is none now, -1 at the stream's end. */
ssize_t stage_fill(struct shim *shim, int which, const char **data)
{
	struct streams *s = &shim->streams;
	int fd = s->source[which].fd, staged;
	ssize_t got = -1;

	s->batch_ns = now_ns(CLOCK_REALTIME);
	staged = s->stage_read_fd >= 0 && !intend(shim, which);
	*data = shim->in + CARRY_MAX;
	if (staged)
		got = gather(shim, fd);
	if (got > 0)
		got = copy(shim);
	else if (!staged || (got < 0 && errno == EINVAL))
		/* No stage, or a terminal of a kernel that cannot splice from one. */
		got = read(fd, shim->in + CARRY_MAX, batch_size(shim));
	s->dirty |= got > PAGE_BYTES - CARRY_MAX;
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	return got ? got : -1;
}

/* The batch is written, as far as it could be. */
void stage_done(struct shim *shim, size_t size)
{
	struct streams *s = &shim->streams;

	if (s->stage_read_fd >= 0)
		splice(s->stage_read_fd, NULL, s->null_fd, NULL, size, SPLICE_F_NONBLOCK);
}

/* What a shim before this one had taken and perhaps written: the logs are as they were before it, the batch at `*data`.
 * Its size, 0 for none. */
ssize_t stage_recover(struct shim *shim, int *which, const char **data)
{
	struct streams *s = &shim->streams;
	struct intent intent;
	int left = 0;

	*which = 0;
	*data = shim->in + CARRY_MAX;
	if (s->stage_read_fd < 0 || pread(s->progress_fd, &intent, sizeof intent, 0) != sizeof intent ||
	    memcmp(intent.kind, KIND, sizeof KIND))
		return 0;
	s->source[0].bytes = intent.counted[0];
	s->source[1].bytes = intent.counted[1];
	s->in_bytes = intent.counted[2];
	s->lost = intent.counted[3];
	s->dropped = intent.counted[4];
	s->batch_ns = intent.batch_ns;
	if (ioctl(s->stage_read_fd, FIONREAD, &left) || !left)
		return 0;
	for (int i = 0; i < 2; i++)
		logfile_cut(&s->log[i], intent.log[i]);
	*which = intent.which == 1;
	return copy(shim);
}

/* A log file: opened late, written as far as it takes it, rotated, opened anew. Nothing about it ever stops the
 * container. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

/* O_NONBLOCK and O_NOCTTY: should it be a fifo or a terminal, it must neither stop us nor become ours. */
#define LOG_FLAGS (O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)

static void look_at_end(struct logfile *log)
{
	char last = '\n';
	off_t end = lseek(log->fd, 0, SEEK_END);

	log->torn = end > 0 && pread(log->fd, &last, 1, end - 1) == 1 && last != '\n';
}

/* Only when the container is made and reported: making a file may take the time of a disk. 0 or -errno. */
int logfile_open(struct logfile *log)
{
	if (log->fd >= 0 || !*log->path)
		return 0;
	log->fd = open(log->path, LOG_FLAGS, 0640);
	if (log->fd < 0)
		return -errno;
	look_at_end(log);
	return 0;
}

/* The end of a line that a full disk or a kill has cut off. 1 when the next line may follow. */
static int mend(struct logfile *log)
{
	if (log->torn && write(log->fd, "\n", 1) == 1)
		log->torn = 0;
	return !log->torn;
}

/* By path again: the old one has been moved. One that cannot be opened leaves us the old one. 0 or -errno. */
int logfile_reopen(struct logfile *log)
{
	struct logfile next = *log;
	int error;

	next.fd = -1;
	error = logfile_open(&next);
	if (error || next.fd < 0)
		return error;
	mend(log);
	if (log->fd >= 0)
		close(log->fd);
	*log = next;
	return 0;
}

/* Device, inode and end of a regular file; zeros for anything else. */
void logfile_identify(const struct logfile *log, uint64_t *identity)
{
	struct stat stat;

	identity[0] = identity[1] = identity[2] = 0;
	if (log->fd < 0 || fstat(log->fd, &stat) || !S_ISREG(stat.st_mode))
		return;
	identity[0] = stat.st_dev;
	identity[1] = stat.st_ino;
	identity[2] = (uint64_t)stat.st_size;
}

/* Back to where it ended then, if it is the same file. */
void logfile_cut(struct logfile *log, const uint64_t *identity)
{
	uint64_t now[3];

	logfile_identify(log, now);
	if (!now[1] || now[0] != identity[0] || now[1] != identity[1] || now[2] <= identity[2])
		return;
	if (!ftruncate(log->fd, (off_t)identity[2]))
		look_at_end(log);
}

static void name_of(char *path, size_t size, const struct logfile *log, uint64_t number)
{
	snprintf(path, size, number ? "%s.%llu" : "%s", log->path, (unsigned long long)number);
}

/* log to log.1, log.1 to log.2, and so on up to the first number that is free, else over the last one: killed between
 * two of the renames, the next who rotates begins at the gap, and no file is lost. */
static void shift(struct shim *shim, const struct logfile *log)
{
	size_t half = sizeof shim->out / 2;
	char *from = shim->out, *to = shim->out + half;	/* nothing is in it now */
	uint64_t last = shim->plan.log_files - 1, gap;
	struct stat stat;

	for (gap = 1; gap < last; gap++) {
		name_of(to, half, log, gap);
		if (lstat(to, &stat))
			break;
	}
	for (; gap > 0; gap--) {
		name_of(from, half, log, gap - 1);
		name_of(to, half, log, gap);
		if (rename(from, to))
			return;
	}
}

static void rotate(struct shim *shim, struct logfile *log)
{
	struct stat stat;

	/* What is ours is elsewhere already, should the file that follows it not have come into being. */
	if (!lstat(log->path, &stat) && shim->plan.log_files > 1)
		shift(shim, log);
	else
		unlink(log->path);
	/* If nothing could be moved this is the old file, which grows. */
	logfile_reopen(log);
}

static size_t framed_size(struct shim *shim, const struct logfile *log, const char *stamp, const char *name, const char *data,
			  size_t size)
{
	size_t sum = 0, eaten = 1;

	for (; size && eaten; data += eaten, size -= eaten)
		sum += log->frame(shim->out, sizeof shim->out, data, size, &eaten, stamp, name);
	return sum;
}

/* Before anything of a batch is written: the next file, if this one would grow beyond its bounds. 1 when it is another
 * one now. */
int logfile_make_room(struct shim *shim, struct logfile *log, const struct source *source, const char *data,
		      size_t size)
{
	char stamp[STAMP_SIZE];
	uint64_t now[3], limit = shim->plan.log_bytes;

	if (!limit || log->fd < 0)
		return 0;
	logfile_identify(log, now);
	/* No byte of output becomes more than 80 of any log: far from the limit nothing is to be counted. */
	if (!now[2] || now[2] + size * 80 <= limit)
		return 0;
	crilog_stamp(stamp, shim->streams.batch_ns);
	if (now[2] + framed_size(shim, log, stamp, source->name, data, size) <= limit)
		return 0;
	rotate(shim, log);
	return 1;
}

/* All of it or counted as lost: a full disk must not stop the container, nor end the loop. */
static void append(struct shim *shim, struct logfile *log, const char *data, size_t size)
{
	int ready = log->fd >= 0 && mend(log);

	while (size) {
		ssize_t put = ready ? write(log->fd, data, size) : -1;

		if (put < 0 && ready && errno == EINTR)
			continue;
		if (put <= 0) {
			shim->streams.lost += size;
			return;
		}
		data += put;
		size -= (size_t)put;
		log->torn = data[-1] != '\n';
	}
}

/* A batch, framed. What the frame leaves of it is carried to the next one. */
void logfile_put(struct shim *shim, struct logfile *log, struct source *source, const char *data, size_t size)
{
	char stamp[STAMP_SIZE];
	size_t eaten = 1, framed;

	if (!*log->path)
		return;
	crilog_stamp(stamp, shim->streams.batch_ns);
	for (; size; data += eaten, size -= eaten) {
		framed = log->frame(shim->out, sizeof shim->out, data, size, &eaten, stamp, source->name);
		if (!eaten)
			break;
		shim->streams.dirty |= framed > PAGE_BYTES;
		append(shim, log, shim->out, framed);
	}
	if (!log->carries)
		return;
	source->carried = size < CARRY_MAX ? size : 0;
	for (size_t i = 0; i < source->carried; i++)
		source->carry[i] = data[i];
}

/* A descriptor that takes output as it is: a client's, a logger's. What it does not take at once waits in a buffer that
 * is there only then. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim.h"

/* Its reader has gone, or there shall be no more: no other is stopped by that. */
void sink_close(struct shim *shim, struct sink *sink)
{
	if (sink->fd >= 0)
		close(sink->fd);
	if (sink->ring)
		munmap(sink->ring, shim->plan.buffer);
	*sink = (struct sink){ .fd = -1, .dropped = sink->dropped };
}

/* What went in, 0 when there is no room, -1 when there is no reader any more. */
static ssize_t put(const struct sink *sink, const char *data, size_t size)
{
	ssize_t done;

	do
		done = write(sink->fd, data, size);
	while (done < 0 && errno == EINTR);
	return done < 0 && errno == EAGAIN ? 0 : done;
}

/* The rest of a batch, as much as fits. */
static void keep(struct shim *shim, struct sink *sink, const char *data, size_t size)
{
	size_t room, limit = shim->plan.buffer, end = (sink->start + sink->used) % limit, whole;

	if (!sink->ring)
		sink->ring = mmap(NULL, limit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (sink->ring == MAP_FAILED)
		sink->ring = NULL;
	room = sink->ring ? limit - sink->used : 0;
	if (size > room) {
		sink->dropped += size - room;
		shim->streams.dropped += size - room;
		size = room;
	}
	whole = size < limit - end ? size : limit - end;
	if (!size)
		return;
	memcpy(sink->ring + end, data, whole);
	memcpy(sink->ring, data + whole, size - whole);
	sink->used += size;
}

void sink_put(struct shim *shim, struct sink *sink, const char *data, size_t size)
{
	ssize_t done = 0;

	if (sink->fd < 0)
		return;
	if (!sink->used)
		done = put(sink, data, size);
	if (done < 0)
		return sink_close(shim, sink);
	if ((size_t)done < size)
		keep(shim, sink, data + done, size - (size_t)done);
}

/* There is room again, or a reader no more. */
void sink_flush(struct shim *shim, struct sink *sink)
{
	ssize_t done = 1;

	while (sink->used && done > 0) {
		size_t whole = shim->plan.buffer - sink->start;

		done = put(sink, sink->ring + sink->start, sink->used < whole ? sink->used : whole);
		if (done > 0) {
			sink->start = (sink->start + (size_t)done) % shim->plan.buffer;
			sink->used -= (size_t)done;
		}
	}
	if (done < 0)
		sink_close(shim, sink);
	else if (!sink->used && sink->ring) {
		munmap(sink->ring, shim->plan.buffer);
		sink->ring = NULL;
		sink->start = 0;
	}
}

/* A whole batch must fit, or it must not be taken from the container. */
bool sink_holds_up(const struct shim *shim, const struct sink *sink)
{
	return sink->fd >= 0 && !sink->drop && shim->plan.buffer - sink->used < BATCH_MAX;
}

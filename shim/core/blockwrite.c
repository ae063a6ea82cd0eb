/* A thread that writes one block at a time into a file, flushed, so that the event loop need not wait for the disk. Part of
 * the extension only. It runs without Python's lock: neither waits for the other. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core.h"

enum { STACK_BYTES = 64 << 10 };

/* From block_write until `event_fd` is readable all of it is the thread's, but for the semaphore. */
struct block_writer {
	pthread_t thread;
	sem_t begun;	/* there is a write, or `over` is set */
	int fd;
	int event_fd;
	int over;
	size_t size;
	int64_t offset;
	int64_t written;	/* bytes, or -errno */
	int64_t took_ns;
	char buffer[];
};

static int64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *writes(void *given)
{
	struct block_writer *w = given;
	const uint64_t one = 1;

	for (;;) {
		int64_t began;
		ssize_t written;

		while (sem_wait(&w->begun))
			;
		if (w->over)
			return NULL;
		began = monotonic_ns();
		do
			written = pwrite(w->fd, w->buffer, w->size, w->offset);
		while (written < 0 && errno == EINTR);
		w->written = written < 0 ? -errno : written;
		w->took_ns = monotonic_ns() - began;
		/* The counter is 0: nothing is in the way of this. */
		while (write(w->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
	}
}

static int begin_thread(struct block_writer *w)
{
	pthread_attr_t small;
	sigset_t all, before;
	int error = pthread_attr_init(&small);

	if (error)
		return -error;
	pthread_attr_setstacksize(&small, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&w->thread, &small, writes, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&small);
	return -error;
}

/* `fd`: opened with O_DSYNC; `event_fd`: of eventfd(2), readable when a write has ended. Both stay the caller's, and
 * open until block_writer_close. 0 or -errno. */
int block_writer_open(struct block_writer **made, int fd, int event_fd, size_t most_bytes)
{
	struct block_writer *w = calloc(1, sizeof(*w) + most_bytes);
	int error;

	if (!w)
		return -ENOMEM;
	w->fd = fd;
	w->event_fd = event_fd;
	if (sem_init(&w->begun, 0, 0)) {
		error = -errno;
		free(w);
		return error;
	}
	error = begin_thread(w);
	if (error) {
		sem_destroy(&w->begun);
		free(w);
		return error;
	}
	*made = w;
	return 0;
}

/* The last write has ended, and `size` is at most what was said before. */
void block_write(struct block_writer *w, const char *data, size_t size, int64_t offset)
{
	memcpy(w->buffer, data, size);
	w->size = size;
	w->offset = offset;
	sem_post(&w->begun);
}

/* Of the write that has ended: the bytes that it has written, or -errno; and how long it took. */
int64_t block_written(const struct block_writer *w, int64_t *took_ns)
{
	*took_ns = w->took_ns;
	return w->written;
}

/* No write is under way. */
void block_writer_close(struct block_writer *w)
{
	w->over = 1;
	sem_post(&w->begun);
	pthread_join(w->thread, NULL);
	sem_destroy(&w->begun);
	free(w);
}

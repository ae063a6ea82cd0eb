/* The journal: one file per keeper instance, fixed entries, the first one its header. An entry is reserved, blocks and all,
 * before there can be anything to write into it, so an entry is never dropped. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "keeper.h"

#define CHUNK 64	/* entries allocated at a time */

/* The first entry, and the blocks of some more. 0 or -errno. */
static int begin(struct keeper *k)
{
	struct proc_stat self;
	char header[ENTRY_SIZE] = "";
	struct writer w;
	int error = proc_stat_read(&self, getpid());
	ssize_t put;

	if (error)
		return error;
	writer_open(&w, header, sizeof header, "exitd-journal", 1);
	writer_text(&w, "instance", k->instance);
	writer_text(&w, "boot_id", k->boot_id);
	writer_number(&w, "pid", (uint64_t)getpid());
	writer_number(&w, "started", self.started);
	writer_number(&w, "slot_size", ENTRY_SIZE);
	writer_close(&w);
	error = posix_fallocate(k->journal_fd, 0, CHUNK * ENTRY_SIZE);
	if (error)
		return -error;
	put = pwrite(k->journal_fd, header, sizeof header, 0);
	return put == sizeof header ? 0 : put < 0 ? -errno : -ENOSPC;
}

/* 0, or -errno and there is no journal. */
int journal_open(struct keeper *k)
{
	int error;

	snprintf(k->instance, sizeof k->instance, "%llx-%d", (unsigned long long)now_ns(CLOCK_BOOTTIME), getpid());
	if ((size_t)snprintf(k->journal_path, sizeof k->journal_path, "%s/keeper-%s.journal", k->state, k->instance) >=
	    sizeof k->journal_path)
		return -ENAMETOOLONG;
	k->journal_fd = open(k->journal_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (k->journal_fd < 0)
		return -errno;
	error = begin(k);
	if (error)
		unlink(k->journal_path);
	return error;
}

/* A free entry with its blocks on the file system, or -1. Entry 0 is the header. */
int journal_reserve(struct keeper *k)
{
	for (int tried = 0; tried < RUNS_MAX; tried++) {
		int entry = k->next_entry % RUNS_MAX + 1;

		k->next_entry = entry;
		if (k->entry_taken[entry])
			continue;
		if (posix_fallocate(k->journal_fd, (off_t)(entry / CHUNK) * CHUNK * ENTRY_SIZE, CHUNK * ENTRY_SIZE))
			return -1;
		k->entry_taken[entry] = 1;
		return entry;
	}
	return -1;
}

int journal_write(struct keeper *k, const struct run *run, const struct exit_facts *facts)
{
	char text[ENTRY_SIZE];
	int error = record_format(text, sizeof text, facts);
	ssize_t put;

	if (error < 0)
		return error;
	do
		put = pwrite(k->journal_fd, text, sizeof text, (off_t)run->entry * ENTRY_SIZE);
	while (put < 0 && errno == EINTR);
	return put == sizeof text ? 0 : -EIO;
}

void journal_clear(struct keeper *k, int entry)
{
	static const char empty[ENTRY_SIZE];

	while (pwrite(k->journal_fd, empty, sizeof empty, (off_t)entry * ENTRY_SIZE) < 0 && errno == EINTR)
		;
	k->entry_taken[entry] = 0;
	/* The lowest free one is the next: a file that only grew would fill the state directory one day. */
	if (entry <= k->next_entry)
		k->next_entry = entry - 1;
}

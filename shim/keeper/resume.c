/* Upgrade: the keeper's table and descriptors through an exec of its (new) program. Pid, children and the subreaper flag
 * stay; SIGCHLD stays blocked and pending; clients reconnect. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "keeper.h"

/* 1: a run had no more than what its output needs; 2: nothing of inits that are strangers' children; 3: no time of an end
 * that could not be written yet; 4: no session. */
#define RESUME_VERSION 5

/* With what was padding behind its last field, where the next version has one. */
#define V2_RUN_SIZE (offsetof(struct run, init_fd) + sizeof(int))

#define V3_RUN_SIZE offsetof(struct run, ended_realtime_ns)

/* As V2_RUN_SIZE. */
#define V4_RUN_SIZE (offsetof(struct run, session) + sizeof(int))

_Static_assert(offsetof(struct run, in_fd) == 624 && V2_RUN_SIZE == 640 && V3_RUN_SIZE == 648 &&
	       V4_RUN_SIZE == 672 && sizeof(struct run) == 672,
	       "the tables of earlier versions must be read");

struct head {
	uint32_t version;
	uint32_t run_size;
	int32_t lock_fd, listen_fd, journal_fd, run_count, stay;
	uint64_t open_files;
	char instance[64];
	char journal_path[4096];
};

static void keep(int fd, int yes)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, yes ? 0 : FD_CLOEXEC);
}

static void keep_all(struct keeper *k, int yes)
{
	keep(k->lock_fd, yes);
	keep(k->listen_fd, yes);
	keep(k->journal_fd, yes);
	for (int i = 0; i < k->run_count; i++) {
		keep(k->runs[i].init_fd, yes);
		for (int slot = STATUS_FD; slot < SLOTS_END; slot++) {
			const int *fd = slots_kept(&k->runs[i], slot);

			keep(fd ? *fd : -1, yes);
		}
	}
}

static int all(ssize_t (*move)(int, void *, size_t), int fd, void *data, size_t size)
{
	for (char *at = data; size;) {
		ssize_t moved = move(fd, at, size);

		if (moved <= 0)
			return -EIO;
		at += moved;
		size -= (size_t)moved;
	}
	return 0;
}

static ssize_t put(int fd, void *data, size_t size)
{
	return write(fd, data, size);
}

static int save(struct keeper *k)
{
	static struct head head;
	int fd = memfd_create("exitd-keeper", 0);

	if (fd < 0)
		return -errno;
	head = (struct head){ RESUME_VERSION, sizeof(struct run), k->lock_fd, k->listen_fd, k->journal_fd,
			      k->run_count, k->stay, k->open_files, "", "" };
	strcpy(head.instance, k->instance);
	strcpy(head.journal_path, k->journal_path);
	if (all(put, fd, &head, sizeof head) || all(put, fd, k->runs, (size_t)k->run_count * sizeof *k->runs) ||
	    lseek(fd, 0, SEEK_SET)) {
		close(fd);
		return -EIO;
	}
	return fd;
}

/* Returns only when it failed: -errno, and everything is as before. */
int resume_exec(struct keeper *k)
{
	char number[16];
	char *argv[] = { "exitd-keeper", "--state", (char *)k->state, "--resume", number, NULL };
	int fd = save(k), error;

	if (fd < 0)
		return fd;
	snprintf(number, sizeof number, "%d", fd);
	keep_all(k, 1);
	execv(k->program, argv);
	error = -errno;
	keep_all(k, 0);
	close(fd);
	return error;
}

/* How large a run is in a table of this version; 0: not known here. To its fields later versions have added, behind them. */
static size_t run_size(uint32_t version)
{
	switch (version) {
	case 1: return offsetof(struct run, in_fd);
	case 2: return V2_RUN_SIZE;
	case 3: return V3_RUN_SIZE;
	case 4: return V4_RUN_SIZE;
	case RESUME_VERSION: return sizeof(struct run);
	default: return 0;
	}
}

static int load_runs(struct keeper *k, int fd, const struct head *head)
{
	/* There is no way back from here to the program that had them. */
	while (!(k->runs = calloc((size_t)head->run_count + 64, sizeof *k->runs)))
		poll(NULL, 0, AGAIN_MS);
	for (k->run_count = 0; k->run_count < head->run_count; k->run_count++) {
		struct run *run = &k->runs[k->run_count];

		run->in_fd = run->stage_fds[0] = run->stage_fds[1] = -1;
		if (all(read, fd, run, head->run_size))
			return -EIO;
		/* Version 2 had padding there. */
		if (head->version < 3)
			run->init_fd = -1, run->has_begun = 0;
		if (head->version < 4)
			run->zombie_status = -1;
		/* Version 4 had padding there; of a shim that is gone nothing is known any more. */
		if (head->version < RESUME_VERSION)
			run->session = run->shim_pid;
		k->entry_taken[run->entry] = 1;
	}
	k->run_room = head->run_count + 64;
	return 0;
}

/* What save() wrote, or a program before this one. 0, -EPROTO for a layout this program does not know, or -EIO. */
int resume_load(struct keeper *k, int fd)
{
	static struct head head;

	if (all(read, fd, &head, sizeof head))
		return -EIO;
	if (!head.run_size || head.run_size != run_size(head.version) || head.run_count < 0 || head.run_count > RUNS_MAX)
		return -EPROTO;
	k->lock_fd = head.lock_fd;
	k->listen_fd = head.listen_fd;
	k->journal_fd = head.journal_fd;
	k->stay = head.stay;
	k->open_files = head.open_files;
	strcpy(k->instance, head.instance);
	strcpy(k->journal_path, head.journal_path);
	if (load_runs(k, fd, &head))
		return -EIO;
	close(fd);
	keep_all(k, 0);
	return 0;
}

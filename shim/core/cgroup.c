/* The end of everybody in a container's cgroup, by files alone. Which directories those are, the plan says. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core.h"
#include "kernel.h"

enum { BATCH = 64, DEPTH_MAX = 32, ROUND_MS = 5, LISTED_MAX = BATCH * 11 };

struct ending {
	int spared_pid;
	int64_t until_ns;
	int found;	/* in this round: they lived, or it could not be known */
	int dying_fd;	/* pidfd of one of them, -1: none */
};

static int left_ms(const struct ending *e)
{
	int64_t left_ns = e->until_ns - now_ns(CLOCK_MONOTONIC);

	return left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0;
}

/* No room for a descriptor says nothing about who is there: a process may be. */
static void weigh_error(struct ending *e)
{
	e->found += errno == EMFILE || errno == ENFILE || errno == ENOMEM;
}

/* Best effort: the file is missing in the other version of cgroups and in older kernels; the look afterwards decides. */
static void put(int dir_fd, const char *name, const char *word)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return;
	while (write(fd, word, strlen(word)) < 0 && errno == EINTR)
		;
	close(fd);
}

/* Up to `size` bytes of a file, 0 where there is none, or -errno of the read. */
static ssize_t list(int dir_fd, const char *name, char *text, size_t size, struct ending *e)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t got;

	if (fd < 0) {
		weigh_error(e);
		return 0;
	}
	do
		got = read(fd, text, size);
	while (got < 0 && errno == EINTR);
	got = got < 0 ? -errno : got;
	close(fd);
	return got;
}

/* The first pids of a cgroup.procs, BATCH at most: those behind are listed first when these have gone. A process of a
 * pid namespace that cannot be seen from here is listed as 0. A threaded cgroup of v2 lists its threads alone: where a
 * process's first thread is among them, its number is the process's; the others open no pidfd. */
static int members(int dir_fd, int *pids, struct ending *e)
{
	char text[LISTED_MAX + 1], *line, *end;
	ssize_t got = list(dir_fd, "cgroup.procs", text, LISTED_MAX, e);
	int count = 0;

	if (got == -EOPNOTSUPP)
		got = list(dir_fd, "cgroup.threads", text, LISTED_MAX, e);
	text[got > 0 ? got : 0] = 0;
	for (line = text; count < BATCH && (end = strchr(line, '\n')); line = end + 1) {
		*end = 0;
		pids[count] = pid_parse(line, strlen(line));
		count += pids[count] > 0;
	}
	return count;
}

static bool is_among(const int *pids, int count, int pid)
{
	for (int i = 0; i < count; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

static bool has_ended(int pidfd)
{
	return poll(&(struct pollfd){ .fd = pidfd, .events = POLLIN }, 1, 0) == 1;
}

/* A number that was read from a file may be a stranger's by now. The pidfd is opened first: a number that is listed after
 * that was ours when it was opened, or is a newer member's and the pidfd's process is dead. */
static void end_members(int dir_fd, struct ending *e)
{
	int pids[BATCH], listed[BATCH], pidfds[BATCH], count = members(dir_fd, pids, e), still;

	if (!count)
		return;
	for (int i = 0; i < count; i++) {
		int spared = pids[i] == e->spared_pid || pids[i] == getpid();

		pidfds[i] = spared ? -1 : pidfd_open_raw(pids[i]);
		if (!spared && pidfds[i] < 0)
			weigh_error(e);
	}
	still = members(dir_fd, listed, e);
	for (int i = 0; i < count; i++) {
		if (pidfds[i] < 0)
			continue;
		if (!has_ended(pidfds[i]) && is_among(listed, still, pids[i])) {
			pidfd_signal(pidfds[i], SIGKILL);
			e->found++;
			if (e->dying_fd < 0) {
				e->dying_fd = pidfds[i];
				continue;
			}
		}
		close(pidfds[i]);
	}
}

/* Of those who were killed in this round one is waited for, shortly: another hierarchy may have it frozen again. */
static void rest(struct ending *e)
{
	int most_ms = left_ms(e);

	poll(&(struct pollfd){ .fd = e->dying_fd, .events = POLLIN }, 1, most_ms < ROUND_MS ? most_ms : ROUND_MS);
	if (e->dying_fd >= 0)
		close(e->dying_fd);
	e->dying_fd = -1;
}

/* One cgroup and all below it. A process that v1 has frozen does not die before it is thawed; one frozen in v2 does. */
static void end_tree(int dir_fd, int depth, struct ending *e)
{
	DIR *dir = fdopendir(dir_fd);
	struct dirent *entry;

	if (!dir)
		weigh_error(e);
	put(dir_fd, "freezer.state", "THAWED");
	end_members(dir_fd, e);
	while (dir && depth < DEPTH_MAX && (entry = readdir(dir))) {
		int below_fd = -1;

		if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			below_fd = openat(dir_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		else
			continue;
		if (below_fd >= 0)
			end_tree(below_fd, depth + 1, e);
		else
			weigh_error(e);
	}
	if (dir)
		closedir(dir);
	else
		close(dir_fd);
}

/* SIGKILL for everybody in these cgroups and below them, but for one pid and the caller itself; returns when they are
 * dead. 0, or -ETIMEDOUT: after `limit_ms` a process still lives. Directories that are not there are empty. */
int cgroup_end(const char *const *paths, int count, int spared_pid, int limit_ms)
{
	struct ending e = { .spared_pid = spared_pid, .dying_fd = -1,
			    .until_ns = now_ns(CLOCK_MONOTONIC) + (int64_t)limit_ms * 1000000 };

	for (int round = 0;; round++) {
		e.found = 0;
		for (int i = 0; i < count; i++) {
			int dir_fd = open(paths[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			if (dir_fd < 0) {
				weigh_error(&e);
				continue;
			}
			/* v2 since Linux 5.14: all at once, forks included. */
			if (!round)
				put(dir_fd, "cgroup.kill", "1");
			end_tree(dir_fd, 0, &e);
		}
		if (!e.found)
			return 0;
		rest(&e);
		if (!left_ms(&e))
			return -ETIMEDOUT;
	}
}

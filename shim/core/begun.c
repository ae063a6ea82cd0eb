/* A runtime that is killed in the middle of its exec may have begun the program all the same. That is a child of this shim
 * then, by the kernel's word, has executed a program, and is in another session than the shim's, where the runtime and its
 * helpers are: runc's program leads that session, and crun's (1.8) is left in it by a process in between. */
#include <dirent.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"
#include "shim.h"

enum { LOOK_MS = 5 };

struct found {
	int pid;		/* 0: none */
	uint64_t started;
	int undecided;		/* a process lives that may execute it yet */
};

static bool is_dead(const struct proc_stat *stat)
{
	return stat->state == 'Z' || stat->state == 'X';
}

/* In the host's pid namespace those whom the program has left behind are children of this shim too: the program is the
 * first of them. */
static void weigh(struct found *found, int pid, const struct proc_stat *stat)
{
	if (!stat->began) {
		found->undecided |= !is_dead(stat);
		return;
	}
	if (stat->session == getsid(0) || (found->pid && found->started <= stat->started))
		return;
	found->pid = pid;
	found->started = stat->started;
}

/* Without a descriptor, or memory, to look with nothing is decided. */
static struct found look(void)
{
	DIR *proc = opendir("/proc");
	struct found found = { .undecided = !proc };
	struct proc_stat stat;

	for (struct dirent *entry; proc && (entry = readdir(proc));) {
		int pid = atoi(entry->d_name), error = pid > 1 ? proc_stat_read(&stat, pid) : -ESRCH;

		if (!error && stat.ppid == getpid())
			weigh(&found, pid, &stat);
		found.undecided |= error && !no_such_process(error);
	}
	if (proc)
		closedir(proc);
	return found;
}

/* Nothing is reaped meanwhile: what has ended is found, too. */
int begun_child(int64_t limit_ms)
{
	int64_t until_ns = now_ns(CLOCK_MONOTONIC) + limit_ms * 1000000;
	struct found found;

	while (!(found = look()).pid && found.undecided && now_ns(CLOCK_MONOTONIC) < until_ns)
		poll(NULL, 0, LOOK_MS);
	return found.pid;
}

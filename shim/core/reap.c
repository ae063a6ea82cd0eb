/* Look, record, end the rest, report, reap: in this order a kill at any instruction leaves the code in the zombie, for the
 * keeper, or in the record. Between record and reap both know and say the same. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"
#include "shim.h"

enum { REST_DIES_MS = 500, BEGUN_TRIES = 20, BEGUN_REST_MS = 10 };

/* By the counter; where that is gone and init was killed, by the kernel's log. -1: not known. */
static int64_t memory_kills(struct shim *shim, const siginfo_t *info)
{
	int64_t kills = memory_last(&shim->memory, shim->plan.oom);
	int killed = info->si_code != CLD_EXITED && info->si_status == SIGKILL;

	return kills < 0 && killed ? kmsg_look(&shim->kmsg) : kills;
}

/* Whether the record is in the file, all of it. */
static bool write_record(struct shim *shim, const siginfo_t *info, const struct rusage *usage, int began)
{
	struct exit_facts facts = {
		.id = shim->plan.id,
		.exec = shim->plan.exec,
		.boot_id = shim->boot_id,
		.witness = "shim",
		.run = shim->plan.run,
		.pid = shim->init_pid,
		.started = shim->init_started,
		.began = began,
		.realtime_ns = now_ns(CLOCK_REALTIME),
		.boottime_ns = now_ns(CLOCK_BOOTTIME),
	};
	char record[RECORD_SIZE];
	ssize_t put;

	wait_facts(&facts, info, usage);
	facts.oom_kills = memory_kills(shim, info);
	if (record_format(record, sizeof record, &facts) < 0)
		return false;
	do
		put = pwrite(shim->record_fd, record, sizeof record, 0);
	while (put < 0 && errno == EINTR);
	return put == sizeof record;
}

/* Without a pid namespace of its own a container's end is not that of what its init has left behind. Before a client hears
 * of it they are dead, execs included. Should that take too long, the daemon says who is left. */
static void end_rest(const struct shim *shim)
{
	if (shim->plan.cgroup_count && access(SHARED_CGROUP, F_OK))
		cgroup_end(shim->plan.cgroup, shim->plan.cgroup_count, shim->init_pid, REST_DIES_MS);
}

/* What the fifo is given: a program that was never executed has no number. iSulad's daemon knows no such word. */
static int code_of(const struct shim *shim, const siginfo_t *info, int began)
{
	if (!began && !shim->plan.isulad)
		return NEVER_BEGAN;
	return info->si_code == CLD_EXITED ? info->si_status : 128 + info->si_status;
}

/* Whether the zombie had executed a program. What cannot be read now (ENFILE, ENOMEM) can be in a moment; -1: it cannot
 * be known. */
static int has_begun(int pid)
{
	struct proc_stat stat;
	int error = proc_stat_read(&stat, pid);

	for (int tries = 0; error && !no_such_process(error) && tries < BEGUN_TRIES; tries++) {
		poll(NULL, 0, BEGUN_REST_MS);
		error = proc_stat_read(&stat, pid);
	}
	return error ? -1 : stat.began;
}

/* Whether init's end could be written down. */
static bool init_ended(struct shim *shim, const siginfo_t *info, const struct rusage *usage)
{
	int began = shim->plan.handled ? -1 : has_begun(info->si_pid);
	bool safe = write_record(shim, info, usage, began);

	shim->code = code_of(shim, info, began);
	end_rest(shim);
	if (!shim->plan.report_last)
		shim_report(shim);
	return safe;
}

void reap_children(struct shim *shim)
{
	struct rusage usage;
	siginfo_t info, gone;

	while (!shim->unsafe && wait_look(&info, &usage)) {
		int is_init = info.si_pid == shim->init_pid && !shim->adopted && !shim->ended;
		bool safe = !is_init || init_ended(shim, &info, &usage);

		/* What cannot be recorded is not reaped: the keeper inherits the zombie and records it. */
		if (safe)
			waitid(P_PID, (id_t)info.si_pid, &gone, WEXITED | WNOHANG);
		if (is_init)
			shim_ended(shim);
		shim->unsafe |= !safe;
	}
}

/* What init left behind has been killed. Until the last of them is reaped, remove_ms at most: what is not dead yet
 * would hold the container's cgroup against its removal. */
void reap_rest(struct shim *shim)
{
	int64_t until_ns = now_ns(CLOCK_MONOTONIC) + (int64_t)shim->plan.remove_ms * 1000000, left_ms;
	siginfo_t info;

	for (;;) {
		reap_children(shim);
		left_ms = (until_ns - now_ns(CLOCK_MONOTONIC)) / 1000000;
		if (left_ms <= 0 || waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT))
			return;
		poll(&(struct pollfd){ .fd = shim->signal_fd, .events = POLLIN }, 1, (int)left_ms);
		drain_signals(shim->signal_fd);
	}
}

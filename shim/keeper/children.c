/* The keeper's children: shims, inits whose shim died first, and other orphans. Look, journal, and only then reap. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../core/kernel.h"
#include "keeper.h"

void spare_take(struct keeper *k)
{
	close(k->spare_fd);
}

void spare_give(struct keeper *k)
{
	k->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* By the zombie's own start time: a registered pid may have become another's meanwhile, even another run's. */
static struct run *run_of_init(struct keeper *k, int pid, const struct proc_stat *stat)
{
	for (int i = 0; i < k->run_count; i++)
		if (k->runs[i].init_pid == pid && k->runs[i].init_started == stat->started &&
		    k->runs[i].outcome == WAITING)
			return &k->runs[i];
	return NULL;
}

/* Whether the shim lives, so that what its runtime makes is its child: 1, 0, or -errno when that cannot be said. */
int has_shim(const struct run *run)
{
	struct proc_stat stat;
	int error = run->shim_pid ? proc_stat_read(&stat, run->shim_pid) : -ESRCH;

	if (error)
		return no_such_process(error) ? 0 : error;
	return stat.started == run->shim_started && stat.state != 'Z' && stat.state != 'X' && !stat.exiting;
}

static bool is_shim(const struct keeper *k, const char *name, int pid)
{
	for (int i = 0; i < k->run_count; i++)
		if (k->runs[i].shim_pid == pid)
			return true;
	return !strcmp(name, "exitd-shim");	/* a replacement */
}

/* Whether it has begun while that run's shim was there, and the shim was killed before it could name it: 1, 0, or -errno
 * when that cannot be said. */
static int may_be_of(const struct run *run, const struct proc_stat *stat)
{
	int has;

	if (!*run->exec || run->init_pid || run->outcome == JOURNALLED || run->shim_started > stat->started ||
	    (run->init_started && stat->started > run->init_started))
		return 0;
	has = has_shim(run);
	return has < 0 ? has : !has;
}

/* Whether a process is in no shim's session: 1, 0, or -errno when that cannot be said. A program that runc has made leads a
 * session; crun's (1.8) is left in one by a process in between, which has ended. */
static int is_apart(const struct keeper *k, int pid, const struct proc_stat *stat)
{
	struct proc_stat leader;
	int error;

	if (stat->session == pid)
		return 1;
	for (int i = 0; i < k->run_count; i++)
		if (k->runs[i].session == stat->session)
			return 0;
	error = stat->session > 0 ? proc_stat_read(&leader, stat->session) : 0;
	if (error)
		return no_such_process(error) ? 1 : error;
	return stat->session > 0 && (leader.state == 'Z' || leader.state == 'X' || leader.started > stat->started);
}

/* What a runtime had begun of an exec when it died with its shim: it is apart from the shim, and has executed a program. With
 * two such execs at a time it cannot be known whose end this is. 0 and `out`, NULL for none; or -errno: it cannot be said
 * now. */
static int run_of_orphan(struct keeper *k, int pid, const struct proc_stat *stat, struct run **out)
{
	struct run *found = NULL;
	int count = 0, apart;

	if (!stat->began || is_shim(k, stat->name, pid))
		return 0;
	apart = is_apart(k, pid, stat);
	if (apart <= 0)
		return apart;
	for (int i = 0; i < k->run_count; i++) {
		int may = may_be_of(&k->runs[i], stat);

		if (may < 0)
			return may;
		if (may)
			found = &k->runs[i], count++;
	}
	for (int i = 0; i < k->run_count && count > 1; i++)
		if (may_be_of(&k->runs[i], stat) > 0)
			k->runs[i].outcome = DOUBTFUL;
	if (count != 1)
		return 0;
	found->init_pid = pid;
	found->init_started = stat->started;
	*out = found;
	return 0;
}

/* Whose end this zombie is: 0 and the run, NULL for no run's. -errno: the zombie, or whose it may be, cannot be read now. */
static int whose(struct keeper *k, int pid, struct proc_stat *stat, struct run **run)
{
	int error = proc_stat_read(stat, pid);

	*run = NULL;
	if (error)
		return no_such_process(error) ? 0 : error;
	*run = run_of_init(k, pid, stat);
	return *run ? 0 : run_of_orphan(k, pid, stat, run);
}

/* What is the same in every entry of this run, and now, or when this was first tried; then the entry. 0, or -errno: nothing
 * is written. */
int journal_exit(struct keeper *k, struct run *run, struct exit_facts *facts)
{
	int error;

	if (!run->ended_boottime_ns) {
		run->ended_realtime_ns = now_ns(CLOCK_REALTIME);
		run->ended_boottime_ns = now_ns(CLOCK_BOOTTIME);
	}
	if (!*k->boot_id)	/* it could not be read when this program began */
		boot_id_read(k->boot_id);
	facts->id = run->id;
	facts->exec = run->exec;
	facts->boot_id = k->boot_id;
	facts->witness = "keeper";
	facts->run = run->run;
	facts->pid = run->init_pid;
	facts->started = run->init_started;
	facts->realtime_ns = run->ended_realtime_ns;
	facts->boottime_ns = run->ended_boottime_ns;
	facts->oom_kills = oom_read(run->oom);
	error = journal_write(k, run, facts);
	if (!error)
		run->outcome = JOURNALLED;
	return error;
}

/* 0, or -errno: then only the zombie has this exit. */
static int journal_zombie(struct keeper *k, struct run *run, const siginfo_t *info, const struct rusage *usage,
			  int began)
{
	struct exit_facts facts = { .began = began };

	wait_facts(&facts, info, usage);
	return journal_exit(k, run, &facts);
}

static void forget_shim(struct keeper *k, int pid)
{
	for (int i = 0; i < k->run_count; i++) {
		if (k->runs[i].shim_pid != pid)
			continue;
		k->runs[i].shim_pid = 0;
		if (!k->runs[i].init_pid && !k->runs[i].init_started)
			k->runs[i].init_started = now_ns(CLOCK_BOOTTIME) / (1000000000 / sysconf(_SC_CLK_TCK)) + 1;
	}
}

/* Reaps every child that has ended and whose end is in the journal. Returns how many ends are new there. */
int children_reap(struct keeper *k)
{
	struct rusage usage;
	siginfo_t info, gone;
	struct proc_stat stat;
	struct run *run;
	int news = 0;

	spare_take(k);
	k->unsettled = 0;
	while (wait_look(&info, &usage)) {
		/* What cannot be read, or written down, is not reaped: the zombie keeps it, and soon it is tried again. */
		k->unsettled = whose(k, info.si_pid, &stat, &run) ||
			       (run && journal_zombie(k, run, &info, &usage, stat.began));
		if (k->unsettled)
			break;
		news += run != NULL;
		forget_shim(k, info.si_pid);
		waitid(P_PID, (id_t)info.si_pid, &gone, WEXITED | WNOHANG);
	}
	spare_give(k);
	return news;
}

bool children_any(void)
{
	siginfo_t info;

	return !waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || errno != ECHILD;
}

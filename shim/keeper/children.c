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

static int look(siginfo_t *info, struct rusage *usage)
{
	memset(info, 0, sizeof *info);
	return !syscall(SYS_waitid, P_ALL, 0, info, WEXITED | WNOHANG | WNOWAIT, usage) && info->si_pid > 0;
}

void spare_take(struct keeper *k)
{
	close(k->spare_fd);
}

void spare_give(struct keeper *k)
{
	k->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static struct run *run_of_init(struct keeper *k, int pid)
{
	struct proc_stat stat;
	int known = 0;

	for (int i = 0; i < k->run_count && !known; i++)
		known = k->runs[i].init_pid == pid;
	if (!known || proc_stat_read(&stat, pid))
		return NULL;
	/* The zombie's own start time: a registered pid may have become another's meanwhile, even another run's. */
	for (int i = 0; i < k->run_count; i++)
		if (k->runs[i].init_pid == pid && k->runs[i].init_started == stat.started &&
		    k->runs[i].outcome == WAITING)
			return &k->runs[i];
	return NULL;
}

/* The shim lives, and what its runtime makes is its child. */
static int has_shim(const struct run *run)
{
	struct proc_stat stat;

	return run->shim_pid && !proc_stat_read(&stat, run->shim_pid) && stat.started == run->shim_started &&
	       stat.state != 'Z' && stat.state != 'X' && !stat.exiting;
}

static int is_shim(const struct keeper *k, const char *name, int pid)
{
	for (int i = 0; i < k->run_count; i++)
		if (k->runs[i].shim_pid == pid)
			return 1;
	return !strcmp(name, "exitd-shim");	/* a replacement */
}

/* It has begun while that run's shim was there, and the shim was killed before it could name it. */
static int may_be_of(const struct run *run, const struct proc_stat *stat)
{
	return *run->exec && !run->init_pid && run->outcome != JOURNALLED && run->shim_started <= stat->started &&
	       (!run->init_started || stat->started <= run->init_started) && !has_shim(run);
}

/* What a runtime had begun of an exec when it died with its shim: it leads a session and has executed a program. Two such
 * execs at a time: whose end this is, nobody can tell. */
static struct run *run_of_stray(struct keeper *k, int pid)
{
	struct proc_stat stat;
	struct run *found = NULL;
	int count = 0;

	if (proc_stat_read(&stat, pid) || stat.session != pid || !stat.began || is_shim(k, stat.name, pid))
		return NULL;
	for (int i = 0; i < k->run_count; i++)
		if (may_be_of(&k->runs[i], &stat))
			found = &k->runs[i], count++;
	for (int i = 0; i < k->run_count && count > 1; i++)
		if (may_be_of(&k->runs[i], &stat))
			k->runs[i].outcome = DOUBTFUL;
	if (count != 1)
		return NULL;
	found->init_pid = pid;
	found->init_started = stat.started;
	return found;
}

static int64_t micros(struct timeval t)
{
	return (int64_t)t.tv_sec * 1000000 + t.tv_usec;
}

/* 0, or -errno: then nobody has this exit but the zombie. */
static int journal_exit(struct keeper *k, struct run *run, const siginfo_t *info, const struct rusage *usage)
{
	struct exit_facts facts = {
		.id = run->id,
		.exec = run->exec,
		.boot_id = k->boot_id,
		.witness = "keeper",
		.run = run->run,
		.pid = run->init_pid,
		.started = run->init_started,
		.signaled = info->si_code != CLD_EXITED,
		.value = info->si_status,
		.core = info->si_code == CLD_DUMPED,
		.began = began_read(info->si_pid),
		.realtime_ns = now_ns(CLOCK_REALTIME),
		.boottime_ns = now_ns(CLOCK_BOOTTIME),
		.oom_kills = oom_read(run->oom),
		.user_us = micros(usage->ru_utime),
		.system_us = micros(usage->ru_stime),
		.max_rss_kb = usage->ru_maxrss,
	};
	int error = journal_write(k, run, &facts);

	if (!error)
		run->outcome = JOURNALLED;
	return error;
}

static void forget_shim(struct keeper *k, int pid)
{
	for (int i = 0; i < k->run_count; i++) {
		if (k->runs[i].shim_pid != pid)
			continue;
		k->runs[i].shim_pid = 0;
		if (!k->runs[i].init_pid)
			k->runs[i].init_started = now_ns(CLOCK_BOOTTIME) / (1000000000 / sysconf(_SC_CLK_TCK)) + 1;
	}
}

void children_reap(struct keeper *k)
{
	struct rusage usage;
	siginfo_t info, gone;
	int news = 0;

	spare_take(k);
	while (look(&info, &usage)) {
		struct run *run = run_of_init(k, info.si_pid);

		if (!run)
			run = run_of_stray(k, info.si_pid);
		/* What cannot be written down is not reaped: the zombie keeps it, and the next signal tries again. */
		if (run && journal_exit(k, run, &info, &usage))
			break;
		news |= run != NULL;
		forget_shim(k, info.si_pid);
		waitid(P_PID, (id_t)info.si_pid, &gone, WEXITED | WNOHANG);
	}
	spare_give(k);
	if (news)
		serve_news(k);
}

int children_any(void)
{
	siginfo_t info;

	return !waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || errno != ECHILD;
}

/* A child that has ended, and what its parent can know of its end before it reaps it. */
#include <string.h>
#include <unistd.h>

#include "core.h"
#include "kernel.h"

/* Finds a child that has ended, and leaves it a zombie: waitid(2) with the rusage argument that the libc's wrapper hides. True
 * with `info` and `usage`, or false: there is none. */
bool wait_look(siginfo_t *info, struct rusage *usage)
{
	memset(info, 0, sizeof *info);
	return !syscall(SYS_waitid, P_ALL, 0, info, WEXITED | WNOHANG | WNOWAIT, usage) && info->si_pid > 0;
}

static int64_t micros(struct timeval t)
{
	return (int64_t)t.tv_sec * 1000000 + t.tv_usec;
}

/* Fills in how it ended and what it used. */
void wait_facts(struct exit_facts *facts, const siginfo_t *info, const struct rusage *usage)
{
	facts->signaled = info->si_code != CLD_EXITED;
	facts->value = info->si_status;
	facts->core = info->si_code == CLD_DUMPED;
	facts->user_us = micros(usage->ru_utime);
	facts->system_us = micros(usage->ru_stime);
	facts->max_rss_kb = usage->ru_maxrss;
}

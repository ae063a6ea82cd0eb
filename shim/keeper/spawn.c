/* Starting one exitd-shim: descriptors in their slots, the run directory as cwd, nothing else inherited. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../core/kernel.h"
#include "keeper.h"

/* In the child of vfork. Sources lie above the slots (serve.c moved them), so no dup2 overwrites another's source. */
static void child(const struct rlimit *files, const char *directory, const char *program, char *const *argv,
		  const int *fds, volatile int *error)
{
	static char *const environment[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setrlimit(RLIMIT_NOFILE, files);
	for (int i = 0; i < SLOT_COUNT; i++)
		if (fds[i] >= 0 && dup2(fds[i], STATUS_FD + i) < 0)
			goto fail;
	if (!chdir(directory))
		execve(program, argv, environment);
fail:
	*error = errno;
	_exit(127);
}

/* 0 and `out`, or -errno. `fds`: one for each slot, -1 where there is none. */
int spawn_shim(struct keeper *k, struct run *run, const char *directory, const char *program, int adopt, int *fds,
	       struct spawned *out)
{
	char *argv[] = { "exitd-shim", run->id, adopt ? "--adopt" : NULL, NULL };
	struct proc_stat stat;
	struct rlimit files;
	volatile int error = 0;
	int pid;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = k->open_files ? k->open_files : files.rlim_cur;
	pid = vfork();
	if (pid < 0)
		return -errno;
	if (!pid)
		child(&files, directory, program, argv, fds, &error);
	if (error)
		return -error;	/* the child is reaped with the others */
	out->pid = pid;
	out->pidfd = pidfd_open_raw(pid);
	error = out->pidfd < 0 ? errno : -proc_stat_read(&stat, pid);
	if (!error) {
		out->started = stat.started;
		if (has_shim(run) == 0) {
			run->shim_pid = run->session = pid;	/* a shim begins a session */
			run->shim_started = out->started;
		}
		return 0;
	}
	/* Refused means that there is no shim; unreaped, the pid is still its. */
	kill(pid, SIGKILL);
	if (out->pidfd >= 0)
		close(out->pidfd);
	out->pidfd = -1;
	return -error;
}

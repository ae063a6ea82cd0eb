/* One runtime command with a time limit, tied to the shim's life. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"
#include "shim.h"

extern char **environ;

/* In a child: what is ignored or blocked here would be ignored in the container: all of them, also those the starter's
 * starter set. */
void command_signals(void)
{
	sigset_t none;

	for (int number = 1; number <= 64; number++)
		signal_default(number);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The shim is protected from the kernel's choice of whom to kill for memory. A crun before 1.10 leaves what it has to
 * the container where its configuration says 0. A vfork's child has a score of its own. */
static void unprotect(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!write(fd, "0", 1);	/* not permitted: then it stays */
	close(fd);
}

/* In the child of vfork: system calls, and snprintf of numbers; nothing of the parent's memory is changed but *error and the
 * runtime's names of its answers. */
static void child(const struct command *c, int parent, volatile int *error)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* A late `delete` of this run would kill the next one: runtime commands die with their shim. The signal is
	 * only sent for a parent that dies after this call, hence the second look. */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != parent)
		_exit(125);
	setpgid(0, 0);
	command_signals();
	/* The shim's own would be that of an exec: runc sets one for a container's first process alone (1.1.5). */
	umask(0022);
	unprotect();
	if (c->answers)
		answers_hand_over(c->answers);
	if (null_fd < 0 || dup2(c->in_fd < 0 ? null_fd : c->in_fd, 0) < 0 || dup2(c->out_fd < 0 ? null_fd : c->out_fd, 1) < 0 ||
	    dup2(c->err_fd < 0 ? null_fd : c->err_fd, 2) < 0)
		*error = errno;
	else
		execve(c->argv[0], c->argv, environ), *error = errno;
	_exit(127);
}

/* Of children nothing is looked at: the caller looks at them. True when the daemon's word was among the signals. */
bool drain_signals(int signal_fd)
{
	struct signalfd_siginfo info[8];
	bool is_reported = false;
	ssize_t got;

	while ((got = read(signal_fd, info, sizeof info)) > 0)
		for (size_t i = 0; i < (size_t)got / sizeof *info; i++)
			is_reported |= info[i].ssi_signo == REPORTED;
	return is_reported;
}

/* Waits for this one child only: orphans of the runtime stay unreaped meanwhile, because one of them is init. */
static int wait_for(int pid, int signal_fd, int64_t until_ns, int *wait_status)
{
	for (;;) {
		siginfo_t info = { .si_pid = 0 };
		int64_t left_ms = (until_ns - now_ns(CLOCK_MONOTONIC) + 999999) / 1000000;

		if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) && errno != EINTR)
			return -errno;
		if (info.si_pid == pid) {
			*wait_status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
			return 0;
		}
		if (left_ms <= 0)
			return -ETIMEDOUT;
		poll(&(struct pollfd){ .fd = signal_fd, .events = POLLIN }, 1, (int)left_ms);
		drain_signals(signal_fd);
	}
}

/* Runs the command to its end, at most limit_ms. 0 with its wait status, -ETIMEDOUT (it and its process group were
 * killed), or -errno when it could not be executed. SIGCHLD may be consumed: the caller looks at its children after. */
int command_run(const struct command *command, int signal_fd, int *wait_status)
{
	int parent = getpid(), result;
	volatile int error = 0;
	int pid = vfork();

	if (pid < 0)
		return -errno;
	if (!pid)
		child(command, parent, &error);
	result = wait_for(pid, signal_fd, now_ns(CLOCK_MONOTONIC) + (int64_t)command->limit_ms * 1000000, wait_status);
	if (result) {
		/* Unreaped, so the pid and its group are still this command's. */
		kill(-pid, SIGKILL);
		kill(pid, SIGKILL);
		wait_for(pid, signal_fd, now_ns(CLOCK_MONOTONIC) + 2000000000, wait_status);
	}
	return error ? -error : result;
}

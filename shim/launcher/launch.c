/* exitd-launch PARENT [--grace MS] -- COMMAND...: a command that dies with the process that asked for it. The daemon cannot
 * set PR_SET_PDEATHSIG for a child itself without a real fork. With --grace the command has so much time more to end what
 * it is in the middle of: a runtime's start that is killed between two steps of its own takes the container with it. What
 * the service manager has set for exitd is not passed on, since a runtime would act on it.
 *
 * Exit status: the command's; 125 when the parent has already gone, 126 or 127 when the command cannot be executed. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MAX 60000

/* NOT_PASSED_ON of supervisor/runtime/oci/runtime.py */
static const char *const not_passed_on[] = { "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", NULL };

static bool is_orphan(pid_t parent)
{
	return getppid() != parent;
}

/* Only a parent that dies after the call sends the signal, hence the second look. */
static int execute(pid_t parent, char **command)
{
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (is_orphan(parent))
		return 125;
	signal(SIGPIPE, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(command[0], command);
	fprintf(stderr, "%s: %s\n", command[0], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}

/* Until the child has ended, or `grace_ms` after the parent has. */
static void wait_both(int parent_fd, int child_fd, int grace_ms)
{
	struct pollfd both[] = { { .fd = child_fd, .events = POLLIN }, { .fd = parent_fd, .events = POLLIN } };

	while (poll(both, 2, -1) < 0 && errno == EINTR)
		;
	if (!both[0].revents)
		poll(both, 1, grace_ms);
}

/* Ends as the child has ended. */
static int as_ended(const siginfo_t *end)
{
	struct rlimit no_core = { 0, 0 };

	if (end->si_code == CLD_EXITED)
		return end->si_status;
	setrlimit(RLIMIT_CORE, &no_core);
	signal(end->si_status, SIG_DFL);
	raise(end->si_status);
	return 128 + end->si_status;
}

/* -1: there is no room for it, and nothing has begun. */
static int outlive(pid_t parent, int grace_ms, char **command)
{
	pid_t self = getpid(), child;
	int parent_fd = (int)syscall(SYS_pidfd_open, parent, 0), child_fd;
	siginfo_t end = { 0 };

	if (parent_fd < 0 || is_orphan(parent))
		return parent_fd < 0 ? -1 : 125;
	signal(SIGCHLD, SIG_DFL);
	child = fork();
	if (!child)
		_exit(execute(self, command));
	if (child < 0)
		return -1;
	child_fd = (int)syscall(SYS_pidfd_open, child, 0);
	if (child_fd >= 0) {	/* without a descriptor for it the command ends when it likes */
		wait_both(parent_fd, child_fd, grace_ms);
		kill(child, SIGKILL);	/* it is not reaped yet, so that the number is its own */
	}
	while (waitid(P_PID, (id_t)child, &end, WEXITED) < 0 && errno == EINTR)
		;
	return as_ended(&end);
}

int main(int argc, char **argv)
{
	int at = 2, grace_ms = 0, code = -1;

	if (argc > at + 1 && !strcmp(argv[at], "--grace")) {
		grace_ms = atoi(argv[at + 1]);
		at += 2;
	}
	if (argc > at && !strcmp(argv[at], "--"))
		at++;
	if (argc <= at || grace_ms < 0 || grace_ms > GRACE_MAX) {
		fprintf(stderr, "usage: exitd-launch PARENT [--grace MS] [--] COMMAND...\n");
		return 125;
	}
	for (const char *const *name = not_passed_on; *name; name++)
		unsetenv(*name);
	if (grace_ms)
		code = outlive(atoi(argv[1]), grace_ms, argv + at);
	return code >= 0 ? code : execute(atoi(argv[1]), argv + at);
}

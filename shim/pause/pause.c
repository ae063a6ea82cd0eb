/* exitd-pause: the first process of a pod, which holds its namespaces by being there. Reaps what others leave to it,
 * and waits. It is all that its root file system needs to hold.
 *
 * Exit status: 0 ended by SIGTERM or SIGINT, 3 bad call. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *text)
{
	/* For people only: who waits for this program learns nothing from it. */
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return;
}

/* From here on the kernel reaps every child as it ends, at once, however many, even while this process is stopped or
 * frozen: a zombie would keep its pid, and a pid namespace from ending. Those that ended before are reaped by hand. */
static void reap_all(void)
{
	signal(SIGCHLD, SIG_IGN);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

int main(int argc, char **argv)
{
	sigset_t ends;
	int number = 0;

	(void)argv;
	if (argc > 1) {
		say("usage: exitd-pause (it takes no arguments; SIGTERM or SIGINT ends it)\n");
		return 3;
	}
	/* Blocked, they wait to be fetched, whenever they come; a first process would not even get them otherwise. */
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_SETMASK, &ends, NULL);
	reap_all();
	if (getpid() != 1) {
		signal(SIGPIPE, SIG_IGN);
		say("exitd-pause: not process 1 here, so orphans come to another; waiting for SIGTERM or SIGINT\n");
	}
	while (sigwait(&ends, &number))
		;
	return 0;
}

/* exitd-launch PARENT -- COMMAND...: a command that dies with the process that asked for it. The daemon cannot set
 * PR_SET_PDEATHSIG for a child itself without a real fork.
 *
 * Exit status: the command's; 125 when the parent has already gone, 126 or 127 when the command cannot be executed. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	sigset_t none;
	int at = argc > 2 && !strcmp(argv[2], "--") ? 3 : 2;

	if (argc <= at) {
		fprintf(stderr, "usage: exitd-launch PARENT [--] COMMAND...\n");
		return 125;
	}
	/* Only a parent that dies after this call sends the signal, hence the second look. */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != atoi(argv[1]))
		return 125;
	signal(SIGPIPE, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(argv[at], argv + at);
	fprintf(stderr, "%s: %s\n", argv[at], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}

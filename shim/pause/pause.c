/* exitd-pause: the first process of a pod, which holds its namespaces by being there. Reaps what others leave to it,
 * and waits. It is all that its root file system needs to hold.
 *
 *     exitd-pause                          waits for SIGTERM or SIGINT
 *     exitd-pause -- PROGRAM [ARG]...      begins the program, hands signals on to it, and ends as it does
 *
 * Exit status: 0 ended by SIGTERM or SIGINT, 3 bad call. With a PROGRAM: its exit status, 128 + n when signal n has
 * ended it, 127 when it is not there, 126 when it cannot be executed. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOT_EXECUTABLE 126
#define NOT_FOUND 127
#define BY_SIGNAL 128

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

static int wait_for_the_end(void)
{
	sigset_t ends;
	int number = 0;

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

/* In the child. A process group of its own, the terminal's foreground if there is a terminal: what is typed there
 * reaches the program alone, once. */
static void execute(char **words, const sigset_t *mask)
{
	int error;

	setpgid(0, 0);
	tcsetpgrp(STDIN_FILENO, getpid()); /* SIGTTOU is blocked; without a terminal it fails, and means nothing */
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(words[0], words);
	error = errno;
	say(words[0]);
	say(error == ENOENT || error == ENOTDIR ? ": not found\n" : ": cannot be executed\n");
	_exit(error == ENOENT || error == ENOTDIR ? NOT_FOUND : NOT_EXECUTABLE);
}

/* Reaps all that have ended. Returns whether the program is one of them, and then how it has. */
static bool has_ended(pid_t program, int *status)
{
	bool ended = false;
	int each;
	pid_t pid;

	while ((pid = waitpid(-1, &each, WNOHANG)) > 0)
		if (pid == program) {
			*status = each;
			ended = true;
		}
	return ended;
}

/* Hands every signal on to the program, until it has ended; returns its exit status as a shell has it. */
static int attend(pid_t program, const sigset_t *all)
{
	int number = 0, status = 0;

	for (;;) {
		if (sigwait(all, &number))
			continue;
		if (number != SIGCHLD)
			kill(program, number);
		else if (has_ended(program, &status))
			return WIFEXITED(status) ? WEXITSTATUS(status) : BY_SIGNAL + WTERMSIG(status);
	}
}

static int begin(char **words)
{
	sigset_t all, mask;
	pid_t program;

	/* Also what faults are reported by: the kernel ends a process that blocks the signal of its own fault. */
	sigfillset(&all);
	signal(SIGCHLD, SIG_DFL); /* ignored, it would not be sent */
	sigprocmask(SIG_SETMASK, &all, &mask);
	/* Orphans come to process 1 by themselves. */
	if (getpid() != 1)
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	program = fork();
	if (program < 0) {
		say("exitd-pause: no process can begin\n");
		return NOT_EXECUTABLE;
	}
	if (!program)
		execute(words, &mask);
	return attend(program, &all);
}

int main(int argc, char **argv)
{
	if (argc == 1)
		return wait_for_the_end();
	if (argc > 2 && !strcmp(argv[1], "--"))
		return begin(argv + 2);
	say("usage: exitd-pause [-- PROGRAM [ARG]...]\n");
	return 3;
}

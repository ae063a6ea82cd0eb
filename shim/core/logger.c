/* A logger program: the output at its descriptors 3 and 4, at 5 the end of a pipe that it closes when it is ready. It
 * is no part of the container: it outlives a shim that is killed, until it has read what there was. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"
#include "shim.h"

enum { FIRST_FD = 3, PIPES = 3, READY_MS = 10000, DYING_MS = 10 };

/* In the child of vfork. The pipes' numbers are beyond those they get. */
static void child(const struct shim *shim, int ends[PIPES][2], volatile int *error)
{
	setpgid(0, 0);
	command_signals();
	for (int i = 0; i < PIPES; i++)
		if (dup2(ends[i][i == 2], FIRST_FD + i) < 0)
			goto fail;
	execve(shim->plan.logger[0], (char *const *)shim->plan.logger, (char *const *)shim->plan.logger_env);
fail:
	*error = errno;
	_exit(127);
}

/* 0 once it has closed its end or written to it, -ETIMEDOUT, or -EPIPE when it has died. */
static int wait_ready(int ready_fd, int process_fd)
{
	struct pollfd ready = { .fd = ready_fd, .events = POLLIN }, dead = { .fd = process_fd, .events = POLLIN };

	if (poll(&ready, 1, READY_MS) <= 0)
		return -ETIMEDOUT;
	/* One that dies closes its end too, a moment before it is dead. */
	return !(ready.revents & POLLIN) && poll(&dead, 1, DYING_MS) ? -EPIPE : 0;
}

static int start(struct shim *shim, int ends[PIPES][2])
{
	struct streams *s = &shim->streams;
	volatile int error = 0;
	int pid = vfork();

	if (pid < 0)
		return -errno;
	if (!pid)
		child(shim, ends, &error);
	if (error)
		return -error;
	/* Unreaped until reap_children() looks, the pid is its own. */
	s->logger_fd = pidfd_open_raw(pid);
	if (s->logger_fd < 0)
		return -errno;
	close(ends[2][1]);
	ends[2][1] = -1;
	return wait_ready(ends[2][0], s->logger_fd);
}

static void kill_logger(struct shim *shim)
{
	pidfd_signal(shim->streams.logger_fd, SIGKILL);
}

/* Beyond the slots, of which a replacement has given some up by now. */
static int open_pipe(int ends[2])
{
	int low[2];

	if (pipe2(low, O_CLOEXEC))
		return -errno;
	for (int i = 0; i < 2; i++) {
		ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, SLOTS_END);
		close(low[i]);
	}
	return ends[0] < 0 || ends[1] < 0 ? -EMFILE : 0;
}

/* 0, also when the plan has none, or -errno and it is gone. */
int logger_begin(struct shim *shim)
{
	struct streams *s = &shim->streams;
	int ends[PIPES][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } }, error = 0;

	if (!*shim->plan.logger)
		return 0;
	for (int i = 0; i < PIPES && !error; i++)
		error = open_pipe(ends[i]);
	if (!error)
		error = start(shim, ends);
	if (error && s->logger_fd >= 0)
		kill_logger(shim);
	for (int i = 0; i < PIPES; i++) {
		close(ends[i][0]);
		if (i == 2 || error)
			close(ends[i][1]);
		else
			s->source[i].sink.fd = ends[i][1];
		if (i != 2 && !error)
			fcntl(ends[i][1], F_SETFL, O_NONBLOCK);
	}
	return error;
}

/* Its input has ended: it has until the end of the drain to write the rest, then it is killed. What is left of it would
 * hold up the wait for the last of our children. */
void logger_end(struct shim *shim, int limit_ms)
{
	int fd = shim->streams.logger_fd;

	if (fd < 0)
		return;
	if (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, limit_ms) != 1) {
		kill_logger(shim);
		poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 1000);
	}
	close(fd);
	shim->streams.logger_fd = -1;
	reap_children(shim);
}

/* What iSulad's daemon wants of a shim and exitd does not: clients' fifos that are opened at one end, so that their end
 * shows; attaching by a message of three paths; sizes of a terminal out of a fifo; a command's time limit; the code on
 * stdout too. All of it only where the plan says `isulad`. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"
#include "shim.h"

enum { MESSAGE_BYTES = 1024, TIMED_OUT = 2 };

/* The starter's stdout and stderr lie at the first slots of namespaces, which such a container does not join. */
void isulad_slots(struct shim *shim)
{
	if (!shim->plan.isulad)
		return;
	shim->isulad.out_fd = fcntl(JOIN_FD, F_DUPFD_CLOEXEC, SLOTS_END);
	shim->isulad.err_fd = fcntl(JOIN_FD + 1, F_DUPFD_CLOEXEC, SLOTS_END);
}

/* 0 or -errno. A container can be attached to; the size of a command's terminal comes out of a fifo, which is opened at
 * both ends: it shall have none. */
int isulad_open(struct shim *shim)
{
	struct isulad *own = &shim->isulad;

	if (!shim->plan.isulad)
		return 0;
	if (*shim->plan.resize)
		own->resize_fd = clients_fifo(shim->plan.resize, O_RDWR);
	if (*shim->plan.exec)
		return 0;
	own->attach_fd = message_listen("attach.sock", SOCK_STREAM, CLIENTS_MAX);
	return own->attach_fd < 0 ? own->attach_fd : 0;
}

/* With the container, or the command, made. The daemon looks for the file `pid` and then does what it likes, which may
 * be to remove this directory: it finds it when this shim needs nothing there any more. 0 or -errno. */
int isulad_begin(struct shim *shim)
{
	uint64_t limit_ms = shim->plan.limit_ms;
	struct itimerspec limit = { .it_value = { .tv_sec = (time_t)(limit_ms / 1000),
						  .tv_nsec = (long)(limit_ms % 1000) * 1000000 } };

	if (!shim->plan.isulad)
		return 0;
	if (limit_ms) {
		shim->isulad.limit_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
		if (shim->isulad.limit_fd < 0 || timerfd_settime(shim->isulad.limit_fd, 0, &limit, NULL))
			return -errno;
	}
	return rename(shim->plan.pid_file, "pid") ? -errno : 0;
}

/* The command has had its time. Its end comes as any other's. */
void isulad_on_limit(struct shim *shim)
{
	close(shim->isulad.limit_fd);
	shim->isulad.limit_fd = -1;
	if (shim->ended)
		return;
	shim->isulad.timed_out = 1;
	pidfd_signal(shim->init_fd, SIGKILL);
}

/* "<columns> <rows>", one such text or several with a NUL behind each; the last one counts. */
void isulad_on_resize(struct shim *shim)
{
	char text[256], *at = text, *end;
	ssize_t got = read(shim->isulad.resize_fd, text, sizeof text - 1);

	for (text[got > 0 ? got : 0] = 0; at < text + got; at += strlen(at) + 1) {
		unsigned long cols = strtoul(at, &end, 10), rows = *end == ' ' ? strtoul(end, NULL, 10) : 0;

		if (rows && cols && rows <= TTY_SIDE_MAX && cols <= TTY_SIDE_MAX && shim->streams.master_fd >= 0)
			console_resize(shim->streams.master_fd, rows, cols);
	}
}

/* A fifo of mode 0600 of our own, somewhere below the working directory: one end of it, or -errno. */
static int open_below(const char *path, int mode)
{
	char here[MESSAGE_BYTES], real[MESSAGE_BYTES], link[32];
	int at_fd = *path == '/' ? open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1, fd = -EPERM;
	struct stat found;
	ssize_t size;

	if (at_fd < 0)
		return -ENOENT;
	snprintf(link, sizeof link, "/proc/self/fd/%d", at_fd);
	size = readlink(link, real, sizeof real - 1);
	real[size > 0 ? size : 0] = 0;
	if (getcwd(here, sizeof here) && !strncmp(real, here, strlen(here)) && real[strlen(here)] == '/' &&
	    !fstat(at_fd, &found) && (found.st_mode & 07777) == 0600 && found.st_uid == geteuid())
		fd = clients_fifo(link, mode);
	close(at_fd);
	return fd;
}

/* Three paths with a blank between them. What is not read any more is passed over, but one must be left. 0 or -1. */
static int attach(struct shim *shim, struct client *client, char *text)
{
	struct streams *s = &shim->streams;
	int fds[3] = { -1, -1, -1 }, wrong = 0;

	for (int i = 0; i < 3 && !wrong; i++) {
		char *path = text, *blank = strchr(text, ' ');

		wrong = (i < 2) != !!blank;
		text = blank ? blank + 1 : text;
		if (blank)
			*blank = 0;
		if (!wrong)
			fds[i] = open_below(path, i ? O_WRONLY : O_RDONLY);
		wrong |= fds[i] < 0 && fds[i] != -ENXIO;
	}
	client->in.fd = fds[0];
	client->sink[0].fd = fds[1];
	client->sink[1].fd = fds[2];
	if (s->in_fd < 0)
		stdin_drop(&client->in);
	client->attached = !wrong && clients_attached(s) < ATTACHED_MAX && (fds[1] >= 0 || fds[2] >= 0);
	return client->attached ? 0 : -1;
}

/* What was attached stays so without the connection; its descriptor stays, for its place in the list. */
void isulad_attach(struct shim *shim, int index)
{
	struct client *client = &shim->streams.client[index];
	char text[MESSAGE_BYTES];
	ssize_t got = recv(client->fd, text, sizeof text - 1, MSG_DONTWAIT);
	int answer;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0)
		return clients_drop(shim, index);
	text[got] = 0;
	answer = attach(shim, client, text);
	send(client->fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (answer)
		clients_drop(shim, index);
	else
		shutdown(client->fd, SHUT_RDWR);
}

/* A client that reads nothing any more is attached no more. */
void isulad_settle(struct shim *shim)
{
	for (int i = 0; i < CLIENTS_MAX; i++) {
		const struct client *client = &shim->streams.client[i];

		if (client->by_paths && client->attached && client->sink[0].fd < 0 && client->sink[1].fd < 0)
			clients_drop(shim, i);
	}
}

/* A system container's wish, which its hooks may see in what is run from now on. */
void isulad_action(const struct shim *shim)
{
	if (shim->plan.isulad && (shim->code == 129 || shim->code == 130))
		setenv("CONTAINER_ACTION", shim->code == 129 ? "reboot" : "shutdown", 1);
}

/* The starter of a command reads its code from there; of one that had no more time it gets none. */
void isulad_report(const struct shim *shim)
{
	int fd = shim->isulad.out_fd;

	if (fd >= 0 && !shim->isulad.timed_out && write(fd, &shim->code, sizeof shim->code) < 0)
		return;	/* it is not waited for */
}

void isulad_failed(const struct shim *shim, int error)
{
	int fd = shim->isulad.err_fd;

	if (fd >= 0 && shim->wait_status)
		dprintf(fd, "shim-error: %s: wait status %d, see log.json\n", shim->stage, shim->wait_status);
	else if (fd >= 0)
		dprintf(fd, "shim-error: %s: %s\n", shim->stage, strerror(-error));
}

int isulad_status(const struct shim *shim)
{
	return shim->isulad.timed_out ? TIMED_OUT : 0;
}

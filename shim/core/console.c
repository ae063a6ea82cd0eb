/* A terminal: the runtime makes the pty and sends its master over a socket in the run directory, which is named by way
 * of this shim's own working directory: the directory's path may be longer than a socket's may be. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "shim.h"

#define NAME "console.sock"

/* Listens, and puts the path in the place of the word @console. 0 or -errno; console_end either way. */
int console_begin(struct shim *shim)
{
	if (!shim->plan.tty)
		return 0;
	snprintf(shim->console_path, sizeof shim->console_path, "/proc/%d/cwd/" NAME, getpid());
	for (const char **word = shim->plan.create; *word; word++)
		if (!strcmp(*word, "@console"))
			*word = shim->console_path;
	shim->streams.console_fd = message_listen(NAME, SOCK_STREAM, CLIENTS_MAX);
	return shim->streams.console_fd < 0 ? shim->streams.console_fd : 0;
}

/* The one descriptor of a message, or -errno. */
static int receive(int fd)
{
	struct passed passed;
	char text[512];
	ssize_t got = message_receive(fd, text, sizeof text, 1, 0, &passed);

	if (got < 0)
		return (int)got;
	if (passed.count == 1 && !passed.error)
		return passed.fds[0];
	message_close(&passed);
	return -ENOMSG;
}

int console_resize(int master_fd, uint64_t rows, uint64_t cols)
{
	struct winsize size = { .ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols };

	return ioctl(master_fd, TIOCSWINSZ, &size) ? -errno : 0;
}

/* The container's terminal, as of now both its output and its input. A slave of our own, where the kernel gives one
 * (4.13): a master whose last slave is closed is hung up, which poll(2) says without end, and a container that has closed
 * its terminal may open it again. */
void console_use(struct shim *shim, int master_fd)
{
	struct streams *s = &shim->streams;

	fcntl(master_fd, F_SETFL, fcntl(master_fd, F_GETFL) | O_NONBLOCK);
	s->master_fd = s->source[0].fd = s->in_fd = master_fd;
	s->source[1].fd = -1;
	s->slave_fd = ioctl(master_fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

/* Init has ended: as of now the output ends with the last of those whom it has left behind. */
void console_let_go(struct shim *shim)
{
	if (shim->streams.slave_fd >= 0)
		close(shim->streams.slave_fd);
	shim->streams.slave_fd = -1;
}

/* The runtime has returned, so what it had to send is here. 0 or -errno. */
int console_take(struct shim *shim)
{
	struct streams *s = &shim->streams;
	int fd, master_fd;

	if (!shim->plan.tty)
		return 0;
	fd = accept4(s->console_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return -errno;
	master_fd = receive(fd);
	close(fd);
	if (master_fd < 0)
		return master_fd;
	if (!isatty(master_fd)) {
		close(master_fd);
		return -ENOTTY;
	}
	console_use(shim, master_fd);
	return shim->plan.rows ? console_resize(master_fd, shim->plan.rows, shim->plan.cols) : 0;
}

void console_end(struct shim *shim)
{
	if (shim->streams.console_fd < 0)
		return;
	close(shim->streams.console_fd);
	shim->streams.console_fd = -1;
	unlink(NAME);
}

/* exitd-journald [SOCKET]: a container's output into systemd's journal, line by line. Started as a logger program: its
 * stdout at descriptor 3, its stderr at 4, and 5 to be closed when everything is ready. CONTAINER_ID, CONTAINER_NAME
 * and CONTAINER_TAG (what stands for the name in front of a line) are in the environment. Ends when both streams do.
 *
 * A journal that is missing or takes nothing costs messages, never the container: their number goes to stderr at the end.
 *
 * Exit status: 0 done, 1 messages were lost, 3 bad call. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "entry.h"

#define SOCKET_PATH "/run/systemd/journal/socket"
#define PATIENCE_MS 1000

enum { FROM_OUT = 3, FROM_ERR = 4, READY_FD = 5, STREAMS = 2 };

struct stream {
	struct piece piece;
	size_t size;
	char data[PIECE_MAX];
};

struct logger {
	const char *path;
	struct labels labels;
	int socket_fd;		/* -1: not connected */
	int impatient;		/* it took nothing for so long that it is not waited for until it takes something */
	int error;		/* of the last message that was lost */
	unsigned long long lost;
	struct stream streams[STREAMS];
};

static int journal_connect(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;

	strcpy(address.sun_path, path);
	if (fd < 0 || !connect(fd, (struct sockaddr *)&address, sizeof address))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* 0 or -errno. A full queue is waited for, once. */
static int try_send(struct logger *l, const char *data, size_t size)
{
	for (int waited = l->impatient;; waited = 1) {
		struct pollfd room = { .fd = l->socket_fd, .events = POLLOUT };

		if (send(l->socket_fd, data, size, MSG_NOSIGNAL) >= 0)
			return 0;
		if (errno != EAGAIN || waited)
			return -errno;
		if (poll(&room, 1, PATIENCE_MS) < 1)
			l->impatient = 1;
	}
}

/* A journal that was started anew has another socket behind the same path: hence the second try. */
static int deliver(struct logger *l, const char *data, size_t size)
{
	int error = -EAGAIN;

	for (int tries = 0; tries < 2; tries++) {
		if (l->socket_fd < 0)
			l->socket_fd = journal_connect(l->path);
		error = l->socket_fd < 0 ? -errno : try_send(l, data, size);
		if (!error)
			l->impatient = 0;
		if (l->socket_fd < 0 || !error || error == -EAGAIN || error == -EMSGSIZE)
			return error;
		close(l->socket_fd);
		l->socket_fd = -1;
	}
	return error;
}

static void write_piece(struct logger *l, const struct piece *piece)
{
	static char datagram[DATAGRAM_MAX];
	size_t size = entry_format(datagram, sizeof datagram, &l->labels, piece);
	int error = size ? deliver(l, datagram, size) : -EMSGSIZE;

	if (error) {
		l->error = -error;
		l->lost++;
	}
}

/* Reads once and writes what is complete. 0 at the stream's end. */
static int pump(struct logger *l, struct stream *s, int fd)
{
	ssize_t got = read(fd, s->data + s->size, sizeof s->data - s->size);
	size_t at = 0, eaten;

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return 1;
	s->size += got > 0 ? (size_t)got : 0;
	while ((eaten = (size_t)entry_cut(s->data + at, s->size - at, got <= 0 || s->size - at == sizeof s->data,
					  &s->piece))) {
		write_piece(l, &s->piece);
		at += eaten;
	}
	s->size -= at;
	memmove(s->data, s->data + at, s->size);
	return got > 0;
}

static void run(struct logger *l)
{
	struct pollfd p[STREAMS] = { { .fd = FROM_OUT, .events = POLLIN }, { .fd = FROM_ERR, .events = POLLIN } };

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		if (poll(p, STREAMS, -1) < 0)
			continue;
		for (int i = 0; i < STREAMS; i++)
			if (p[i].fd >= 0 && p[i].revents && !pump(l, &l->streams[i], p[i].fd)) {
				close(p[i].fd);
				p[i].fd = -1;
			}
	}
}

static const char *from_environment(const char *key, const char *otherwise)
{
	const char *value = getenv(key);

	return value && *value ? value : otherwise;
}

/* A number at which nothing was placed must not be given to the next file opened. */
static void take_slots(void)
{
	for (int fd = 0; fd <= READY_FD; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			return;
}

int main(int argc, char **argv)
{
	static struct logger l = { .socket_fd = -1 };

	take_slots();
	l.path = argc > 1 ? argv[1] : SOCKET_PATH;
	l.labels.id = from_environment("CONTAINER_ID", "");
	l.labels.name = from_environment("CONTAINER_NAME", "");
	l.labels.identifier = from_environment("CONTAINER_TAG", *l.labels.name ? l.labels.name : l.labels.id);
	l.streams[0].piece.priority = 6;
	l.streams[1].piece.priority = 3;
	if (argc > 2 || strlen(l.path) >= sizeof ((struct sockaddr_un *)0)->sun_path ||
	    strlen(l.labels.id) >= LABEL_MAX || strlen(l.labels.name) >= LABEL_MAX ||
	    strlen(l.labels.identifier) >= LABEL_MAX) {
		fprintf(stderr, "usage: CONTAINER_ID=ID [CONTAINER_NAME=NAME] [CONTAINER_TAG=TAG] "
			"exitd-journald [SOCKET]\n");
		return 3;
	}
	l.socket_fd = journal_connect(l.path);
	close(READY_FD);
	run(&l);
	if (l.lost)
		fprintf(stderr, "exitd-journald: %llu messages lost, the last one: %s\n", l.lost, strerror(l.error));
	return l.lost > 0;
}

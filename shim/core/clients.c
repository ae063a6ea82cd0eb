/* The places of the clients: who is connected, and what each of them has attached. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

static const struct client free_place = { .fd = -1, .in.fd = -1, .sink = { { .fd = -1 }, { .fd = -1 } } };

void clients_begin(struct streams *s)
{
	for (int i = 0; i < CLIENTS_MAX; i++)
		s->client[i] = free_place;
}

/* Gives a connection the first free place. 0, or -EUSERS: there is none, and the connection stays the caller's. */
int clients_add(struct streams *s, int fd, int by_paths)
{
	for (int i = 0; i < CLIENTS_MAX; i++) {
		if (s->client[i].fd >= 0)
			continue;
		s->client[i].fd = fd;
		s->client[i].by_paths = by_paths;
		if (i >= s->client_count)
			s->client_count = i + 1;
		return 0;
	}
	return -EUSERS;
}

/* Closes the connection, and what was attached over it. */
void clients_drop(struct shim *shim, int index)
{
	struct client *client = &shim->streams.client[index];

	if (client->fd >= 0)
		close(client->fd);
	stdin_drop(&client->in);
	for (int i = 0; i < 2; i++)
		sink_close(shim, &client->sink[i]);
	*client = free_place;
}

/* How many clients have something attached. */
int clients_attached(const struct streams *s)
{
	int count = 0;

	for (int i = 0; i < CLIENTS_MAX; i++)
		count += s->client[i].attached;
	return count;
}

/* Opens one end of a client's fifo. The descriptor, or -errno: -ENXIO when no process reads it. */
int clients_fifo(const char *path, int mode)
{
	int fd = open(path, mode | O_NONBLOCK | O_CLOEXEC);
	struct stat found;

	if (fd < 0)
		return -errno;
	if (!fstat(fd, &found) && S_ISFIFO(found.st_mode))
		return fd;
	close(fd);
	return -EINVAL;
}

/* `delete`: containerd has lost this container's relay, or is done with it. Prints how the container ended; as
 * often as it is called, and whatever is left of the bundle. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon.h"

#define SCHEME "unix://"

enum { LOCK_MS = 200, REPLY_ROOM = 4096 };

static int format(char *out, size_t room, const struct seen *seen)
{
	char stamp[32];
	struct writer t = { .data = stamp, .size = sizeof stamp }, w = { .data = out, .size = room };

	proto_number(&t, 1, (uint64_t)(seen->realtime_ns / 1000000000));
	proto_number(&t, 2, (uint64_t)(seen->realtime_ns % 1000000000));
	proto_number(&w, 1, (uint64_t)seen->pid);
	proto_number(&w, 2, (uint64_t)seen->status);
	proto_text(&w, 3, stamp, t.used);
	return (int)w.used;
}

/* A relay that was killed could not remove its socket. One that is alive is left alone. */
static void remove_stale_socket(const char *bundle)
{
	char path[PATH_ROOM + 16], address[SOCKET_ROOM + 16] = "";
	const char *socket = address + sizeof SCHEME - 1;
	int fd, lock_fd;

	snprintf(path, sizeof path, "%s/address", bundle);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return;
	if (read(fd, address, sizeof address - 1) < 0)
		*address = 0;
	close(fd);
	address[strcspn(address, "\n")] = 0;
	if (strncmp(address, SCHEME SOCKETS "/", sizeof SCHEME SOCKETS) || strchr(socket + sizeof SOCKETS, '/'))
		return;
	lock_fd = place_lock(LOCK_MS);
	if (lock_fd < 0)
		return;
	if (!place_is_served(socket, 0))
		unlink(socket);
	close(lock_fd);
}

int delete_main(const struct words *w)
{
	char here[PATH_ROOM], reply[REPLY_ROOM];
	const char *bundle = *w->bundle ? w->bundle : getcwd(here, sizeof here) ? here : ".";
	int size = cleanup_ask(w, bundle, reply, sizeof reply);
	struct seen seen;

	if (size < 0) {
		fate_leave_word(w, bundle);
		fate_settle(bundle, &seen);
		size = format(reply, sizeof reply, &seen);
	}
	remove_stale_socket(bundle);
	return write(STDOUT_FILENO, reply, (size_t)size) == size ? 0 : 1;
}

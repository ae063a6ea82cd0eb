/* `delete`: containerd has lost this container's relay, or is done with it. Prints how the container ended; as
 * often as it is called, and whatever is left of the bundle. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../core/kernel.h"
#include "daemon.h"

#define SCHEME "unix://"

/* containerd kills this program after 5 s, and reads the reply only when it ends by itself. The lock may take what the end
 * itself does not take of that, and never most of it: a machine under load needs the rest. */
enum { ALL_MS = 4200, LOCK_MIN_MS = 200, LOCK_MAX_MS = 1500, REPLY_ROOM = 4096 };

static int64_t now_ms(void)
{
	return now_ns(CLOCK_MONOTONIC) / 1000000;
}

/* The socket of the relay that had this bundle, in `address`; "" where the bundle names none. */
static const char *socket_of(const char *bundle, char address[SOCKET_ROOM + 16])
{
	const char *socket = address + sizeof SCHEME - 1;
	char path[PATH_ROOM + 16];
	ssize_t got = -1;
	int fd;

	snprintf(path, sizeof path, "%s/address", bundle);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0) {
		got = read(fd, address, SOCKET_ROOM + 15);
		close(fd);
	}
	address[got > 0 ? got : 0] = 0;
	address[strcspn(address, "\n")] = 0;
	if (strncmp(address, SCHEME SOCKETS "/", sizeof SCHEME SOCKETS) || strchr(socket + sizeof SOCKETS, '/'))
		return "";
	return socket;
}

/* A relay that was killed could not remove its socket. One that is alive is left alone. Each `start` on the machine has
 * the lock while its relay begins. */
static void remove_stale_socket(const char *socket, int64_t end_ms)
{
	int64_t left_ms = end_ms - now_ms();
	int lock_fd;

	if (!*socket)
		return;
	lock_fd = place_lock(left_ms < LOCK_MIN_MS ? LOCK_MIN_MS : left_ms > LOCK_MAX_MS ? LOCK_MAX_MS : (int)left_ms);
	if (lock_fd < 0)
		return;
	if (!place_is_served(socket, 0))
		unlink(socket);
	close(lock_fd);
}

int delete_main(const struct words *w)
{
	char here[PATH_ROOM], reply[REPLY_ROOM], address[SOCKET_ROOM + 16];
	const char *bundle = *w->bundle ? w->bundle : getcwd(here, sizeof here) ? here : ".";
	const char *socket = socket_of(bundle, address);
	int64_t end_ms = now_ms() + ALL_MS;
	int size = cleanup_ask(w, bundle, reply, sizeof reply);
	struct writer made = { .data = reply, .size = sizeof reply };
	struct seen seen;

	if (size < 0) {
		fate_leave_word(w, bundle, socket);
		fate_settle(bundle, &seen);
		witness_deleted(&made, &seen);
		size = (int)made.used;
	}
	remove_stale_socket(socket, end_ms);
	return write(STDOUT_FILENO, reply, (size_t)size) == size ? 0 : 1;
}

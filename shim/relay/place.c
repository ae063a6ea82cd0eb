/* Where a relay's socket is: one for each group of containers, under a lock while it is made or removed. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon.h"

#define DOCUMENT_MAX 16777216

/* The group that config.json in the working directory names. Its length, 0 for none, or -errno. A sandbox's bundle has no
 * such file: it is the group that its members name. */
static int read_group(char *group)
{
	int fd = open("config.json", O_RDONLY | O_CLOEXEC), found = -EFBIG;
	struct stat file;
	char *json;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &file))
		return -errno;
	if (file.st_size > 0 && file.st_size < DOCUMENT_MAX) {
		json = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		found = json == MAP_FAILED ? -errno : group_find(json, (size_t)file.st_size, group, GROUP_MAX);
		if (json != MAP_FAILED)
			munmap(json, (size_t)file.st_size);
	}
	close(fd);
	return found;
}

/* 0 or -errno. Without a group a container is one by itself. */
int place_find(const struct words *w, char *group, char *socket)
{
	char path[PATH_ROOM], hash[HASH_SIZE];
	int size = read_group(group);

	if (size < 0)
		return size;
	if (!size && (size_t)snprintf(group, GROUP_MAX, "%s", w->id) >= GROUP_MAX)
		return -ENAMETOOLONG;
	size = snprintf(path, sizeof path, "/%s/%s/%s", w->address, w->name_space, group);
	if ((size_t)size >= sizeof path)
		return -ENAMETOOLONG;
	size = address_clean(path);
	sha256_hex(hash, path, (size_t)size);
	snprintf(socket, SOCKET_ROOM, SOCKETS "/%s", hash);
	return 0;
}

static void nothing(int number)
{
	(void)number;
}

/* The descriptor that holds the lock, or -errno: -EINTR when others kept it for too long. */
int place_lock(int limit_ms)
{
	struct timeval time = { limit_ms / 1000, limit_ms % 1000 * 1000 };
	/* Again and again: the first signal may come before the wait begins. */
	struct itimerval limit = { .it_value = time, .it_interval = time }, none = { 0 };
	struct sigaction interrupt = { .sa_handler = nothing };
	int fd, error = 0;

	mkdir("/run/containerd", 0711);
	mkdir(SOCKETS, 0700);
	fd = open(SOCKETS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	sigaction(SIGALRM, &interrupt, NULL);
	setitimer(ITIMER_REAL, &limit, NULL);
	if (flock(fd, LOCK_EX))
		error = -errno;
	setitimer(ITIMER_REAL, &none, NULL);
	if (!error)
		return fd;
	close(fd);
	return error;
}

/* A connection to a socket that does not block, or -errno. */
int place_dial(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, error;

	if ((size_t)snprintf(address.sun_path, sizeof address.sun_path, "%s", path) >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address))
		return fd;
	error = -errno;
	if (fd >= 0)
		close(fd);
	return error;
}

/* To exitd, which is root, or who we are: no other user may answer for it. */
int place_dial_exitd(const char *state)
{
	char path[SOCKET_ROOM];
	struct ucred peer;
	socklen_t size = sizeof peer;
	int fd;

	if ((size_t)snprintf(path, sizeof path, "%s/shimv2.sock", state) >= sizeof path)
		return -ENAMETOOLONG;
	fd = place_dial(path);
	if (fd < 0 || (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && (!peer.uid || peer.uid == geteuid())))
		return fd;
	close(fd);
	return -EPERM;
}

/* Whether a process listens there, or may: a full queue has a listener, and want of descriptors or memory says nothing.
 * `is_promised`: it learns that containerd will come. */
bool place_is_served(const char *path, int is_promised)
{
	int fd = place_dial(path), is_told = 1;
	char soon[FRAME_HEAD];

	frame_head(soon, 0, 0, FRAME_SOON);
	if (fd >= 0 && is_promised)
		is_told = send(fd, soon, sizeof soon, MSG_NOSIGNAL) == sizeof soon;
	if (fd >= 0)
		close(fd);
	return (fd >= 0 && is_told) || fd == -EAGAIN || fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS;
}

/* `start`: a relay for the container's group, the one that is there or a new one. Its address is all that is
 * printed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../core/kernel.h"
#include "daemon.h"

enum { LOCK_MS = 5000, READY_MS = 5000, LISTEN_FD = 3, READY_FD, QUEUE = 4096 };

static int fail(const char *what, int error)
{
	fprintf(stderr, PROGRAM ": %s: %s\n", what, strerror(-error));
	return 1;
}

/* The listening socket; -EEXIST when a relay listens there already; else -errno. Under the lock. */
static int listen_at(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (fd < 0)
		return -errno;
	if (place_is_served(path, 1)) {
		close(fd);
		return -EEXIST;
	}
	unlink(path);
	umask(0177);
	if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, QUEUE))
		error = -errno;
	umask(0022);
	if (!error)
		return fd;
	close(fd);
	return error;
}

/* For containerd's next start, and for `delete`. Whole or not there. */
static int write_address(const char *socket)
{
	FILE *file = fopen(".address", "we");
	int bad = !file || fprintf(file, "unix://%s", socket) < 0;

	if (file && fclose(file))
		bad = 1;
	if (bad || chmod(".address", 0644) || rename(".address", "address"))
		return -errno;
	return 0;
}

/* One more than containerd's own: of the two the relay is to be killed first. */
static void be_killed_sooner(void)
{
	char text[16] = "";
	int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC), size, score;

	if (fd >= 0 && read(fd, text, sizeof text - 1) > 0 && (score = atoi(text)) < 1000) {
		size = snprintf(text, sizeof text, "%d", score + 1);
		if (pwrite(fd, text, (size_t)size, 0) < 0)
			size = 0;	/* not root: then it stays */
	}
	if (fd >= 0)
		close(fd);
}

/* Away from containerd: its pipe must see an end, and no bundle may be held. */
static int become_daemon(struct relay *r, int listen_fd, int ready_fd)
{
	int null_fd = open("/dev/null", O_RDWR);

	setsid();
	for (int fd = 0; fd < 3; fd++)
		if (dup2(null_fd, fd) < 0)
			return 1;
	ready_fd = fcntl(ready_fd, F_DUPFD, READY_FD);
	if (dup2(listen_fd, LISTEN_FD) < 0 || dup2(ready_fd, READY_FD) < 0 || chdir("/"))
		return 1;
	close_from(READY_FD + 1);
	listen(LISTEN_FD, QUEUE);	/* once more: who connects is to see this process, not the one that is gone */
	be_killed_sooner();
	r->listener.fd = LISTEN_FD;
	r->ready_fd = READY_FD;
	return daemon_run(r);
}

static int announce(const char *socket)
{
	return printf("unix://%s\n", socket) < 0 || fflush(stdout) ? -errno : 0;
}

/* The daemon says one byte once it serves; without, it has ended, or hangs. */
static int await_ready(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char byte;

	return poll(&p, 1, READY_MS) == 1 && read(fd, &byte, 1) == 1 ? 0 : -ECHILD;
}

/* Nothing stays behind of what failed here: containerd does not call `delete` then. */
static int launch(struct relay *r, int listen_fd, char *action)
{
	int ready[2] = { -1, -1 }, error = write_address(r->socket), pid = -1;

	if (!error)
		pid = pipe2(ready, O_CLOEXEC) ? -1 : fork();
	if (!error && !pid) {
		memset(action, 0, strlen(action));	/* what ps shows is no `start` any more */
		exit(become_daemon(r, listen_fd, ready[1]));
	}
	if (!error && pid < 0)
		error = -errno;
	close(ready[1]);
	if (!error)
		error = await_ready(ready[0]);
	if (!error)
		error = announce(r->socket);
	if (!error)
		return 0;
	if (pid > 0)
		kill(pid, SIGKILL);
	unlink(r->socket);
	return fail("cannot start the relay", error);
}

int start_main(struct words *w, char *action)
{
	static struct relay r;
	int error, lock_fd, listen_fd;

	r.words = w;
	bootstrap_read(w);
	if (!*w->name_space || !*w->id)
		return fail("start needs -namespace and -id", -EINVAL);
	error = place_find(w, r.group, r.socket);
	if (error)
		return fail("config.json of the bundle", error);
	if (!getcwd(r.scratch, PATH_ROOM))
		return fail("working directory", -errno);
	r.log = strdup(strcat(r.scratch, "/log"));
	if (!r.log)
		return fail("working directory", -ENOMEM);
	lock_fd = place_lock(LOCK_MS);
	if (lock_fd < 0)
		return fail(SOCKETS, lock_fd);
	listen_fd = listen_at(r.socket);
	if (listen_fd >= 0)
		return launch(&r, listen_fd, action);
	error = listen_fd == -EEXIST ? write_address(r.socket) : listen_fd;
	if (!error)
		error = announce(r.socket);
	return error ? fail(r.socket, error) : 0;
}

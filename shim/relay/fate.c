/* What `delete` does by itself while exitd is away: leave word for it, end the container, and read what its shim
 * has seen. Cleaning up stays the shim's and exitd's. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../core/kernel.h"
#include "daemon.h"

enum { RECORD_MS = 1000, AGAIN_MS = 20 };

static int64_t now_ms(void)
{
	return now_ns(CLOCK_MONOTONIC) / 1000000;
}

static void complain(const char *what)
{
	fprintf(stderr, PROGRAM ": %s: %s\n", what, strerror(errno));
}

/* A file of at most `room` bytes: its size, or -errno. */
static int read_file(const char *path, char *out, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t got;

	if (fd < 0)
		return -errno;
	got = read(fd, out, room);
	close(fd);
	return got < 0 ? -EIO : (int)got;
}

/* What the kernel has no room for now it may have in a moment. */
static bool is_short(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

/* <state>/shimv2/gone/HASH: exitd finds it when it is back, and gives the task up. `socket`: the dead relay's, or "". */
void fate_leave_word(const struct words *w, const char *bundle, const char *socket)
{
	char text[MESSAGE_MAX], name[512], hash[HASH_SIZE], path[PATH_ROOM], made[PATH_ROOM + 16];
	struct writer out;
	int fd, size;

	size = snprintf(name, sizeof name, "%s/%s", w->name_space, w->id);
	sha256_hex(hash, name, (size_t)size < sizeof name ? (size_t)size : sizeof name - 1);
	writer_open(&out, text, sizeof text, "gone", 1);
	writer_text(&out, "namespace", w->name_space);
	writer_text(&out, "id", w->id);
	writer_text(&out, "bundle", bundle);
	writer_text(&out, "socket", socket);
	size = writer_close(&out);
	snprintf(path, sizeof path, "%s/shimv2", w->state);
	mkdir(path, 0700);
	snprintf(path, sizeof path, "%s/shimv2/gone", w->state);
	mkdir(path, 0700);
	snprintf(path, sizeof path, "%s/shimv2/gone/%s", w->state, hash);
	snprintf(made, sizeof made, "%s.%d", path, (int)getpid());
	fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || size < 0 || write(fd, text, (size_t)size) != size || rename(made, path)) {
		complain(path);
		unlink(made);
	}
	if (fd >= 0)
		close(fd);
}

/* By descriptor, and only if it is the process that exitd knew by this pid. 0, also for one that has gone; or -errno. */
static int try_to_end(int pid, uint64_t started)
{
	struct proc_stat now;
	int fd = pidfd_open_raw(pid), error = fd < 0 ? -errno : proc_stat_read(&now, pid);

	if (!error && now.started == started && pidfd_signal(fd, SIGKILL))
		error = -errno;
	if (fd >= 0)
		close(fd);
	return no_such_process(error) ? 0 : error;
}

static void end_process(int pid, uint64_t started, int64_t end_ms)
{
	int error;

	while (is_short(error = try_to_end(pid, started)) && now_ms() < end_ms)
		poll(NULL, 0, AGAIN_MS);
	if (error) {
		errno = -error;
		complain("the container is not ended");
	}
}

static int read_record(const char *path, int pid, uint64_t started, struct seen *out)
{
	char data[RECORD_SIZE];
	int size = read_file(path, data, sizeof data);
	struct seen found;

	if (size < 0 || evidence_read(&found, data, (size_t)size) || found.pid != pid || found.started != started)
		return -EAGAIN;
	*out = found;
	return 0;
}

static void await_record(const char *path, int pid, uint64_t started, int64_t end_ms, struct seen *out)
{
	int64_t left_ms = end_ms - now_ms();
	struct pollfd p = { .fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), .events = POLLIN };
	char events[4096];

	if (p.fd >= 0)
		inotify_add_watch(p.fd, path, IN_MODIFY);
	while (read_record(path, pid, started, out) && left_ms > 0) {
		poll(&p, 1, (int)(p.fd < 0 && left_ms > AGAIN_MS ? AGAIN_MS : left_ms));
		while (p.fd >= 0 && read(p.fd, events, sizeof events) > 0)
			;
		left_ms = end_ms - now_ms();
	}
	if (p.fd >= 0)
		close(p.fd);
}

/* The end that exitd has left in the bundle when it removed the task: containerd has died since, or did not hear it.
 * 0, or -ENOENT. */
static int read_end(const char *text, size_t size, struct seen *out)
{
	uint64_t code, at_ns;

	if (fields_number(text, size, "code", &code) || code > UNKNOWN_STATUS ||
	    fields_number(text, size, "at_ns", &at_ns) || !at_ns || at_ns > INT64_MAX)
		return -ENOENT;
	out->status = (int)code;
	out->realtime_ns = (int64_t)at_ns;
	return 0;
}

/* How the container ended, or what stands for not knowing: 255, and now. */
void fate_settle(const char *bundle, struct seen *out)
{
	char text[MESSAGE_MAX], path[PATH_ROOM];
	const char *directory;
	uint64_t pid, started;
	int64_t end_ms = now_ms() + RECORD_MS;
	int size;

	*out = (struct seen){ .status = UNKNOWN_STATUS };
	snprintf(path, sizeof path, "%s/exitd.task", bundle);
	while (is_short(size = read_file(path, text, sizeof text)) && now_ms() < end_ms)
		poll(NULL, 0, AGAIN_MS);
	if (size > 0 && fields_check(text, (size_t)size, "task") > 0 && !fields_number(text, (size_t)size, "pid", &pid) &&
	    !fields_number(text, (size_t)size, "started", &started) && pid > 1 && pid <= INT32_MAX &&
	    (directory = fields_get(text, (size_t)size, "directory"))) {
		out->pid = (int)pid;
		if (!read_end(text, (size_t)size, out))
			return;
		snprintf(path, sizeof path, "%s/exit.json", directory);
		if (read_record(path, (int)pid, started, out)) {
			end_process((int)pid, started, end_ms);
			await_record(path, (int)pid, started, end_ms, out);
		}
	} else if (size != -ENOENT) {
		errno = size < 0 ? -size : EBADMSG;
		complain(path);
	}
	if (!out->realtime_ns)
		out->realtime_ns = now_ns(CLOCK_REALTIME);
}

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

/* <state>/shimv2/gone/HASH: exitd finds it when it is back, and gives the task up. `socket`: the dead relay's, or "". 0, or
 * -errno, which has been complained of. */
int fate_leave_word(const struct words *w, const char *bundle, const char *socket)
{
	char text[MESSAGE_MAX], name[512], hash[HASH_SIZE], path[PATH_ROOM], made[PATH_ROOM + 16];
	struct writer out;
	int fd, size, error = 0;

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
	errno = 0;
	fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || size < 0 || write(fd, text, (size_t)size) != size || rename(made, path)) {
		error = errno ? -errno : -EIO;
		complain(path);
		unlink(made);
	}
	if (fd >= 0)
		close(fd);
	return error;
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

static void await_record(const char *path, int pid, uint64_t started, int64_t end_ms, struct seen *out)
{
	int64_t left_ms = end_ms - now_ms();
	struct pollfd p = { .fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), .events = POLLIN };
	char events[4096];

	if (p.fd >= 0)
		inotify_add_watch(p.fd, path, IN_MODIFY);
	while (bundle_record(path, pid, started, out) && left_ms > 0) {
		poll(&p, 1, (int)(p.fd < 0 && left_ms > AGAIN_MS ? AGAIN_MS : left_ms));
		while (p.fd >= 0 && read(p.fd, events, sizeof events) > 0)
			;
		left_ms = end_ms - now_ms();
	}
	if (p.fd >= 0)
		close(p.fd);
}

/* How the container ended, or what stands for not knowing: 255, and now. */
void fate_settle(const char *bundle, struct seen *out)
{
	char room[NOTE_ROOM];
	const char *record = "";
	int64_t end_ms = now_ms() + RECORD_MS;
	int error;

	*out = (struct seen){ .status = UNKNOWN_STATUS };
	while (is_short(error = bundle_read(bundle, out, room, &record)) && now_ms() < end_ms)
		poll(NULL, 0, AGAIN_MS);
	if (!error && out->realtime_ns)
		return;
	if (!error && bundle_record(record, out->pid, out->started, out)) {
		end_process(out->pid, out->started, end_ms);
		await_record(record, out->pid, out->started, end_ms, out);
	} else if (error && error != -ENOENT) {
		errno = -error;
		complain(bundle);
	}
	if (!out->realtime_ns)
		out->realtime_ns = now_ns(CLOCK_REALTIME);
}

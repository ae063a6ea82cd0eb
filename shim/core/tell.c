/* What the shim says to others: the outcome of create to whoever asked for it, init's pid to the keeper. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shim.h"

#define ERROR_TEXT_MAX 3072

enum { ASK_TRIES = 10, ASK_REST_MS = 100 };

/* A reader that is gone or full costs the message, never the shim. */
static void send_status(const char *text, int size, int fd)
{
	pass(STATUS_FD, text, size, fd, MSG_DONTWAIT);
}

static void put_self(struct writer *w)
{
	struct proc_stat self;

	writer_number(w, "shim_pid", (uint64_t)getpid());
	if (!proc_stat_read(&self, getpid()))
		writer_number(w, "shim_started", self.started);
}

void tell_created(struct shim *shim, int keeper_knows)
{
	struct writer w;
	char text[512];

	writer_open(&w, text, sizeof text, "exitd-status", 1);
	writer_text(&w, "kind", "created");
	writer_number(&w, "pid", (uint64_t)shim->init_pid);
	writer_number(&w, "started", shim->init_started);
	put_self(&w);
	writer_text(&w, "keeper", keeper_knows ? "yes" : "no");
	send_status(text, writer_close(&w), shim->init_fd);
	close(STATUS_FD);
}

/* The end of the runtime's log, where its last words are, or what it said on stderr if it died before it had a log;
 * made harmless for the fields grammar. */
static void last_words(const char *path, int had_run, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	ssize_t got = 0;

	if (fd >= 0) {
		got = pread(fd, out, size - 1, end > (off_t)size - 1 ? end - ((off_t)size - 1) : 0);
		close(fd);
	}
	if (got <= 0 && had_run)
		got = read(ERR_FD, out, size - 1);
	out[got > 0 ? got : 0] = 0;
	for (ssize_t i = 0; i < got; i++)
		if (!out[i])
			out[i] = '?';
}

void tell_failed(struct shim *shim, const char *stage, int error, int wait_status)
{
	static char text[MESSAGE_MAX], words[ERROR_TEXT_MAX];
	struct writer w;

	writer_open(&w, text, sizeof text, "exitd-status", 1);
	writer_text(&w, "kind", "failed");
	writer_text(&w, "stage", stage);
	writer_number(&w, "errno", (uint64_t)-error);
	writer_number(&w, "wait_status", (uint64_t)wait_status);
	put_self(&w);
	if (shim->plan.runtime_log && *shim->plan.runtime_log) {
		last_words(shim->plan.runtime_log, wait_status, words, sizeof words);
		writer_text(&w, "text", words);
	}
	send_status(text, writer_close(&w), -1);
	close(STATUS_FD);
	isulad_failed(shim, stage, error, wait_status);
}

/* The kernel has nothing left for it now, and may have in a moment; it says nothing about the keeper. */
static int is_short(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == ETOOMANYREFS;
}

/* 1: the keeper said ok, 0: it did not, -1: it hung up, which it does when it makes way for its successor, or when it has no
 * descriptor; or the kernel could not pass the request on. */
static int ask(struct shim *shim, int fd, const char *text, int size, const int *fds, int count)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char answer[256];
	ssize_t got;

	if (strlen(shim->plan.keeper) >= sizeof address.sun_path)
		return 0;
	strcpy(address.sun_path, shim->plan.keeper);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) ||
	    pass_all(fd, text, size, fds, count, 0) != size)
		return is_short(errno) ? -1 : 0;
	if (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 1000) != 1)
		return 0;
	got = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
	if (got <= 0)
		return -1;
	if (fields_check(answer, (size_t)got, "exitd-ok") < 0)
		return 0;
	heir_known(shim, fd, answer, (size_t)got);
	return 1;
}

/* Before the loop begins: it waits. With the send timeout a stopped keeper costs a second once, and what it was to be asked
 * for. 1 when it said ok. */
static int ask_keeper(struct shim *shim, const char *text, int size, const int *fds, int count)
{
	struct timeval limit = { .tv_sec = 1 };
	int fd, answer = -1;

	for (int tries = 0; tries < ASK_TRIES && answer < 0 && *shim->plan.keeper; tries++) {
		if (tries)
			poll(NULL, 0, ASK_REST_MS);
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
		answer = ask(shim, fd, text, size, fds, count);
		close(fd);
	}
	return answer > 0;
}

static struct registration registration_of(const struct shim *shim)
{
	return (struct registration){
		.id = shim->plan.id,
		.exec = shim->plan.exec,
		/* A path too long for the keeper's table costs the OOM count, not the exit. */
		.oom = strlen(shim->plan.oom) < OOM_PATH_MAX ? shim->plan.oom : "",
		.run = shim->plan.run,
		.pid = shim->init_pid,
		.started = shim->init_started,
	};
}

/* Tells the keeper init's name, so that it writes a journal entry should it have to reap init, and gives it a copy of
 * the tty's master (-1: none), which must outlive this shim. 1 when it knows. */
int tell_keeper(struct shim *shim, int tty_fd)
{
	struct registration r = registration_of(shim);
	char text[1024];

	return ask_keeper(shim, text, registration_write(text, sizeof text, &r), &tty_fd, tty_fd >= 0);
}

/* An empty seat holds /dev/null (setup.c). A keeper that had it would find something to read there for ever. */
static int is_stream(int fd)
{
	struct stat found;

	return fd >= 0 && !fstat(fd, &found) && (!S_ISCHR(found.st_mode) || isatty(fd));
}

/* For a keeper that was not there when the run began: the same, and who registers, with a copy of every descriptor that a
 * replacement of this shim would need. The message's size, or -E2BIG; the descriptors and their count. */
static int write_anew(struct shim *shim, char *text, size_t size, int *fds, int *count)
{
	const struct streams *s = &shim->streams;
	const int seats[] = { OUT_FD, ERR_FD, IN_WRITE_FD, STAGE_READ_FD, STAGE_WRITE_FD };
	const int held[] = { s->source[0].fd, s->source[1].fd, s->master_fd < 0 ? s->in_fd : -1, s->stage_read_fd,
			     s->stage_write_fd };
	struct registration r = registration_of(shim);
	struct proc_stat self;

	if (!proc_stat_read(&self, getpid())) {
		r.shim_pid = getpid();
		r.shim_started = self.started;
	}
	*count = 0;
	for (int i = 0; i < (int)(sizeof seats / sizeof *seats); i++)
		if (is_stream(held[i])) {
			r.seats[r.seat_count++] = seats[i];
			fds[(*count)++] = held[i];
		}
	return registration_write(text, size, &r);
}

/* Over a connection whose answer is awaited elsewhere. 0, or -1: it takes no message now. */
int tell_register(struct shim *shim, int fd)
{
	int fds[PASSED_MAX], count, size;
	char text[1024];

	size = write_anew(shim, text, sizeof text, fds, &count);
	return pass_all(fd, text, size, fds, count, MSG_DONTWAIT) > 0 ? 0 : -1;
}

/* Likewise: the keeper's copy of a seat is in the way. */
int tell_release(struct shim *shim, int fd, int seat)
{
	struct writer w;
	char text[512];

	writer_open(&w, text, sizeof text, "exitd-release", 1);
	writer_text(&w, "id", shim->plan.id);
	writer_number(&w, "run", shim->plan.run);
	writer_text(&w, "exec", shim->plan.exec);
	writer_number(&w, "seat", (uint64_t)seat);
	return pass(fd, text, writer_close(&w), -1, MSG_DONTWAIT) > 0 ? 0 : -1;
}

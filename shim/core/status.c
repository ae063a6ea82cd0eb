/* The status socket: what has become of create, for the process that asked for it, once. Never blocks, never fails the
 * container. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shim.h"

#define ERROR_TEXT_MAX 3072

/* A reader that is gone or full costs the message, never the shim. */
static void send_status(const char *text, int size, int fd)
{
	message_send(STATUS_FD, text, size, fd, MSG_DONTWAIT);
}

static void put_self(struct writer *w)
{
	struct proc_stat self;

	writer_number(w, "shim_pid", (uint64_t)getpid());
	if (!proc_stat_read(&self, getpid()))
		writer_number(w, "shim_started", self.started);
}

void status_created(struct shim *shim)
{
	struct writer w;
	char text[512];

	writer_open(&w, text, sizeof text, "exitd-status", 1);
	writer_text(&w, "kind", "created");
	writer_number(&w, "pid", (uint64_t)shim->init_pid);
	writer_number(&w, "started", shim->init_started);
	put_self(&w);
	writer_text(&w, "keeper", shim->keeper_knows ? "yes" : "no");
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

void status_failed(struct shim *shim, int error)
{
	char text[MESSAGE_MAX], words[ERROR_TEXT_MAX];
	struct writer w;

	writer_open(&w, text, sizeof text, "exitd-status", 1);
	writer_text(&w, "kind", "failed");
	writer_text(&w, "stage", shim->stage);
	writer_number(&w, "errno", (uint64_t)-error);
	writer_number(&w, "wait_status", (uint64_t)shim->wait_status);
	put_self(&w);
	if (shim->plan.runtime_log && *shim->plan.runtime_log) {
		last_words(shim->plan.runtime_log, shim->wait_status, words, sizeof words);
		writer_text(&w, "text", words);
	}
	send_status(text, writer_close(&w), -1);
	close(STATUS_FD);
}

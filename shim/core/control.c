/* The control socket: one request, one answer, both one SEQPACKET message of fields. What is attached is attached for as
 * long as its connection lasts. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

#define NAME "control.sock"

enum { IN = 1, OUT = 2, ERR = 4, FDS_MAX = 3, REQUEST_MAX = 512 };

struct request {
	char text[REQUEST_MAX];
	size_t size;
	struct passed passed;
};

/* 0: a container whose socket cannot be made runs without. */
int control_begin(struct shim *shim)
{
	shim->streams.listen_fd = message_listen(NAME, SOCK_SEQPACKET, CLIENTS_MAX);
	return 0;
}

void control_accept(struct shim *shim, int listen_fd, int by_paths)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred peer;
	socklen_t size = sizeof peer;

	if (fd < 0) {
		/* Left in the queue it would wake us for ever. */
		shim->accept_pauses = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
		return;
	}
	/* The socket's mode says the same; this says it whatever became of the mode. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.uid != geteuid() ||
	    clients_add(&shim->streams, fd, by_paths))
		close(fd);
}

/* The streams named, one bit each, or -EINVAL. */
static int streams_named(const char *list)
{
	static const char *const names[] = { "in", "out", "err" };
	int named = 0;

	while (list && *list) {
		size_t length = strcspn(list, ",");
		int bit = 0;

		for (int i = 0; i < 3; i++)
			if (strlen(names[i]) == length && !memcmp(names[i], list, length))
				bit = 1 << i;
		if (!bit || named & bit)
			return -EINVAL;
		named |= bit;
		list += length + (list[length] == ',');
	}
	return named ? named : -EINVAL;
}

static bool is_pipe_end(int fd, int mode)
{
	struct stat found;

	return !fstat(fd, &found) && S_ISFIFO(found.st_mode) && (fcntl(fd, F_GETFL) & O_ACCMODE) == mode;
}

/* 0, or -errno and the word for it. */
static int check_attach(const struct streams *s, const struct request *r, int named, const char *mode)
{
	int at = 0;

	if (named < 0 || (strcmp(mode, "lossless") && strcmp(mode, "drop")))
		return -EINVAL;
	for (int bit = IN; bit <= ERR; bit <<= 1)
		if (named & bit &&
		    (at == r->passed.count || !is_pipe_end(r->passed.fds[at++], bit == IN ? O_RDONLY : O_WRONLY)))
			return -EINVAL;
	if (at != r->passed.count)
		return -EINVAL;
	if (clients_attached(s) == ATTACHED_MAX)
		return -EUSERS;
	if (named & ERR && s->master_fd >= 0)
		return -ENOTTY;
	return named & IN && (s->in_fd < 0 || s->in_closing) ? -EPIPE : 0;
}

static int on_attach(struct shim *shim, struct client *client, struct request *r)
{
	struct streams *s = &shim->streams;
	const char *mode = fields_get(r->text, r->size, "mode");
	int named = streams_named(fields_get(r->text, r->size, "streams")), at = 0;
	int error = client->attached ? -EBUSY : check_attach(s, r, named, mode ? mode : "");

	if (error)
		return error;
	client->attached = 1;
	if (named & IN)
		client->in.fd = r->passed.fds[at++];
	for (int i = 0; i < 2; i++) {
		if (!(named & OUT << i))
			continue;
		client->sink[i] = (struct sink){ .fd = r->passed.fds[at++], .drop = !strcmp(mode, "drop") };
		fcntl(client->sink[i].fd, F_SETFL, O_NONBLOCK);
	}
	r->passed.count = 0;
	s->hold_until_ns = 0;
	return 0;
}

static int on_close_stdin(struct shim *shim, struct client *client, struct request *r)
{
	(void)client, (void)r;
	return stdin_close(shim);
}

static int on_resize(struct shim *shim, struct client *client, struct request *r)
{
	uint64_t rows, cols;

	(void)client;
	if (shim->streams.master_fd < 0)
		return -ENOTTY;
	if (fields_number(r->text, r->size, "rows", &rows) || fields_number(r->text, r->size, "cols", &cols) ||
	    rows > TTY_SIDE_MAX || cols > TTY_SIDE_MAX)
		return -EINVAL;
	return console_resize(shim->streams.master_fd, rows, cols);
}

static int on_reopen(struct shim *shim, struct client *client, struct request *r)
{
	int error = 0;

	(void)client, (void)r;
	for (int i = 0; i < 2 && !error; i++)
		error = logfile_reopen(&shim->streams.log[i]);
	return error;
}

/* Another's container has ended. A fifo that its shim has never opened is at its end, which poll(2) does not say. */
static int on_end(struct shim *shim, struct client *client, struct request *r)
{
	(void)client, (void)r;
	if (!shim->plan.follow)
		return -ENOSYS;
	shim_ended(shim);
	for (int i = 0; i < 2; i++)
		if (shim->streams.source[i].fd >= 0 && !streams_wait(shim, i) && streams_move(shim, i) < 0)
			streams_end_source(shim, &shim->streams.source[i]);
	return 0;
}

/* There is another keeper, which knows nothing of this run. It is asked at once, and answers when it does: 0 says that it
 * will be asked, and not that it knows the run. */
static int on_register(struct shim *shim, struct client *client, struct request *r)
{
	(void)client, (void)r;
	return shim->ended ? 0 : heir_anew(shim);
}

static int write_counters(const struct streams *s, const struct client *client, char *text, size_t size)
{
	uint64_t missed = 0;
	struct writer w;

	for (int i = 0; i < 2; i++)
		missed += client->sink[i].dropped;
	writer_open(&w, text, size, "exitd-counters", 1);
	writer_number(&w, "out", s->source[0].bytes);
	writer_number(&w, "err", s->source[1].bytes);
	writer_number(&w, "in", s->in_bytes);
	writer_number(&w, "lost", s->lost);
	writer_number(&w, "dropped", s->dropped);
	writer_number(&w, "in_session", client->in.bytes);
	writer_number(&w, "missed_session", missed);
	writer_number(&w, "attached", (uint64_t)clients_attached(s));
	return writer_close(&w);
}

/* At the very end, unasked: what this client has missed, and will not get any more. */
static void farewell(struct shim *shim, int index)
{
	struct client *client = &shim->streams.client[index];
	char text[512];
	int size;

	if (client->fd < 0)
		return;
	for (int i = 0; i < 2; i++)
		client->sink[i].dropped += client->sink[i].used;
	size = write_counters(&shim->streams, client, text, sizeof text);
	send(client->fd, text, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static const char *word_for(int error, int tty)
{
	switch (-error) {
	case ENOTTY: return tty ? "a terminal has no such thing" : "there is no terminal";
	case EPIPE: return "stdin is closed";
	case EBUSY: return "attached already";
	case EUSERS: return "too many are attached";
	case ENOSYS: return "unknown request";
	case EINVAL: return "bad request";
	case EAGAIN: return "the keeper did not say yes";
	default: return "it cannot be done";
	}
}

static int write_answer(int error, int tty, char *text, size_t size)
{
	struct writer w;

	writer_open(&w, text, size, error ? "exitd-refused" : "exitd-ok", 1);
	if (error) {
		writer_text(&w, "why", word_for(error, tty));
		writer_number(&w, "errno", (uint64_t)-error);
	}
	return writer_close(&w);
}

/* At which byte of each stream the client's part begins: nothing is moved between the attach and its answer. */
static int write_attached(const struct streams *s, char *text, size_t size)
{
	struct writer w;

	writer_open(&w, text, size, "exitd-ok", 1);
	writer_number(&w, "out", s->source[0].bytes);
	writer_number(&w, "err", s->source[1].bytes);
	writer_number(&w, "in", s->in_bytes);
	return writer_close(&w);
}

/* Does what the request asks for: 0 or -errno. */
static int obey(struct shim *shim, struct client *client, struct request *r, const char *op)
{
	static const struct {
		const char *op;
		int (*run)(struct shim *shim, struct client *client, struct request *r);
	} commands[] = {
		{ "attach", on_attach },
		{ "close-stdin", on_close_stdin },
		{ "resize", on_resize },
		{ "reopen-log", on_reopen },
		{ "end", on_end },
		{ "register", on_register },
	};

	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (!strcmp(op, commands[i].op))
			return commands[i].run(shim, client, r);
	return -ENOSYS;
}

static void answer(struct shim *shim, int index, struct request *r)
{
	struct client *client = &shim->streams.client[index];
	const char *op = fields_check(r->text, r->size, "exitd-control") > 0 ? fields_get(r->text, r->size, "op") : NULL;
	char text[512];
	int size, error = 0;

	if (op && !strcmp(op, "counters")) {
		size = write_counters(&shim->streams, client, text, sizeof text);
	} else {
		error = op ? obey(shim, client, r, op) : -ENOSYS;
		size = !error && !strcmp(op, "attach") ? write_attached(&shim->streams, text, sizeof text)
						       : write_answer(error, shim->plan.tty != 0, text, sizeof text);
	}
	if (send(client->fd, text, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		clients_drop(shim, index);
}

void control_serve(struct shim *shim, int index)
{
	struct client *client = &shim->streams.client[index];
	struct request r = { .size = 0 };
	ssize_t got = client->fd < 0 ? 0 : message_receive(client->fd, r.text, sizeof r.text, FDS_MAX, 0, &r.passed);

	if (got == -EAGAIN || got == -EINTR)
		return;
	if (got <= 0)
		return clients_drop(shim, index);
	r.size = (size_t)got;
	/* Not all of them came, or too many: no request has that many. A text that was cut short is no whole message. */
	if (r.passed.error)
		message_close(&r.passed);
	answer(shim, index, &r);
	message_close(&r.passed);
}

/* With the last of the output delivered: no client is attached any more, and none can come. */
void control_end(struct shim *shim)
{
	struct streams *s = &shim->streams;

	for (int i = 0; i < s->client_count; i++) {
		farewell(shim, i);
		clients_drop(shim, i);
	}
	if (s->listen_fd >= 0) {
		close(s->listen_fd);
		unlink(NAME);
	}
	s->listen_fd = -1;
}

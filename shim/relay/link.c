/* The connections to exitd, one for each of containerd's. */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon.h"

enum { LIVE_ROOM = CONNECTIONS_MAX * 12 };

/* The message, or an empty one; in the relay's scratch, behind the numbers of what lives. */
static struct text hello(struct relay *r, const struct connection *c)
{
	char *live = r->scratch, *out;
	size_t used = 0;
	struct writer w;
	int size;

	*live = 0;
	for (const struct connection *each = r->first; each; each = each->next)
		if (each->number && used < LIVE_ROOM - 24)
			used += (size_t)snprintf(live + used, LIVE_ROOM - used, "%s%llu", used ? "," : "",
						 (unsigned long long)each->number);
	out = live + used + 1;
	writer_open(&w, out, sizeof r->scratch - used - 1, "relay-hello", 1);
	writer_text(&w, "relay", r->id);
	writer_number(&w, "connection", c->number);
	writer_text(&w, "live", live);
	writer_number(&w, "pid", (uint64_t)getpid());
	writer_number(&w, "started", r->started);
	writer_number(&w, "courier", 1);
	writer_text(&w, "namespace", r->words->name_space);
	writer_text(&w, "group", r->group);
	writer_text(&w, "address", r->words->events);
	writer_text(&w, "socket", r->socket);
	size = writer_close(&w);
	return (struct text){ out, size > 0 ? (size_t)size : 0 };
}

void link_open(struct relay *r, struct connection *c, int64_t now_ms)
{
	int fd = place_dial_exitd(r->words->state);
	struct text first;

	c->tried_ms = now_ms;
	if (fd < 0) {
		r->next_try_ms = now_ms + RETRY_MS;
		if (!r->is_away)
			relay_log(r, "warning", "exitd is away, what is asked of it waits");
		if (!r->is_away)
			r->away_ms = now_ms;
		r->is_away = 1;
		return;
	}
	if (r->is_away)
		relay_log(r, "info", "exitd is back");
	r->is_away = 0;
	c->up = (struct end){ .of = c, .fd = fd };
	first = hello(r, c);
	session_up(&c->session, first.at, first.size, now_ms);
}

void link_close(struct connection *c)
{
	close(c->up.fd);
	c->up.fd = -1;
	session_down(&c->session);
}

/* Some of what is there. 0 when there is no more now, -1 at the end. */
static int read_some(struct relay *r, struct connection *c)
{
	ssize_t got = recv(c->up.fd, r->scratch, sizeof r->scratch, 0);

	if (got > 0)
		session_answer(&c->session, r->scratch, (size_t)got);
	if (got < 0 && errno == ECONNRESET)
		session_unheard(&c->session);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	silence_over(r);
	return got > 0 ? 1 : -1;
}

void link_read(struct relay *r, struct connection *c)
{
	if (read_some(r, c) < 0)
		link_close(c);
}

/* A peer that takes no more may still have said something: that is read before the connection is given up. */
static void last_words(struct relay *r, struct connection *c)
{
	while (read_some(r, c) > 0)
		;
	link_close(c);
}

void link_write(struct relay *r, struct connection *c, int64_t now_ms)
{
	struct buffer *out = &c->session.to_exitd;

	session_fill(&c->session, now_ms);
	while (out->end > out->at) {
		ssize_t put = send(c->up.fd, out->data + out->at, out->end - out->at, MSG_NOSIGNAL);

		if (put < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (put < 0)
			return last_words(r, c);
		buffer_take(out, (size_t)put);
		session_fill(&c->session, now_ms);
	}
}

/* The courier's connection to containerd, made when there is something to bring and kept while containerd keeps it. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon.h"

#define SCHEME "unix://"

static void drop(struct relay *r)
{
	if (r->post.fd >= 0)
		close(r->post.fd);
	r->post = (struct end){ .fd = -1 };
	courier_down(&r->courier);
}

/* A full queue has a listener, and is tried again. */
static void dial(struct relay *r, int64_t now_ms)
{
	const char *path = r->words->events;
	int fd = place_dial(strncmp(path, SCHEME, sizeof SCHEME - 1) ? path : path + sizeof SCHEME - 1);

	r->dial_ms = now_ms + RETRY_MS;
	if (fd == -EAGAIN)
		return;
	if (fd < 0)
		return drop(r);
	r->post = (struct end){ .fd = fd };
	courier_up(&r->courier);
}

void post_read(struct relay *r)
{
	char data[1024];
	ssize_t got = recv(r->post.fd, data, sizeof data, 0);

	if (got > 0 ? courier_hear(&r->courier, data, (size_t)got) : !got || (errno != EAGAIN && errno != EINTR))
		drop(r);
}

static void write_out(struct relay *r)
{
	struct buffer *out = &r->courier.to_containerd;

	while (r->post.fd >= 0 && out->end > out->at) {
		ssize_t put = send(r->post.fd, out->data + out->at, out->end - out->at, MSG_NOSIGNAL);

		if (put < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (put < 0)
			return drop(r);
		buffer_take(out, (size_t)put);
	}
}

/* Whether there is a containerd that would take an event: exitd is not looked for without one either. */
static bool is_taken(const struct relay *r)
{
	for (const struct connection *c = r->first; c; c = c->next)
		if (c->down.fd >= 0)
			return true;
	return false;
}

/* All that can be done without waiting. */
void post_settle(struct relay *r, int64_t now_ms)
{
	const struct buffer *out = &r->courier.to_containerd;

	if (courier_look(&r->courier, now_ms))
		drop(r);
	if (is_taken(r))
		courier_bring(&r->courier, r->is_away && now_ms >= r->away_ms + AWAY_MS, now_ms);
	if (courier_wants(&r->courier) && now_ms >= r->dial_ms)
		dial(r, now_ms);
	write_out(r);
	courier_look(&r->courier, now_ms);
	end_watch(r, &r->post, EPOLLIN | (out->end > out->at ? (uint32_t)EPOLLOUT : 0));
}

/* When something is due by itself. */
int64_t post_due_ms(const struct relay *r)
{
	const struct courier *c = &r->courier;

	if (!c->number)
		return c->bring_ms && is_taken(r) ? c->bring_ms : INT64_MAX;
	return courier_wants(c) && r->dial_ms < c->due_ms ? r->dial_ms : c->due_ms;
}

/* containerd's connections: it has one for each task. What it writes is always read. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon.h"

void end_watch(struct relay *r, struct end *end, uint32_t events)
{
	struct epoll_event wanted = { .events = events, .data.ptr = end };

	if (end->fd < 0 || end->events == events)
		return;
	if (!epoll_ctl(r->epoll_fd, end->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, end->fd, &wanted))
		end->events = events;
}

static bool is_ours(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof peer;

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == geteuid();
}

static void add(struct relay *r, struct connection *c, int fd, int64_t now_ms)
{
	session_init(&c->session, &r->cache);
	c->session.courier = &r->courier;
	c->session.witness = &r->witness;
	c->down = (struct end){ .of = c, .fd = fd };
	c->up = (struct end){ .of = c, .fd = -1 };
	c->tried_ms = now_ms - RETRY_MS;
	c->next = r->first;
	r->first = c;
	r->count++;
}

/* Without a descriptor, or with too many connections, the rest waits before the door for a moment. */
void connection_accept(struct relay *r, int64_t now_ms)
{
	int fd = r->count < CONNECTIONS_MAX ? accept4(r->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
	struct connection *c = fd < 0 || !is_ours(fd) ? NULL : calloc(1, sizeof *c);

	if (fd < 0 && (r->count == CONNECTIONS_MAX || (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED))) {
		r->next_accept_ms = now_ms + RETRY_MS;
		epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, r->listener.fd, NULL);
		r->listener.events = 0;
	}
	if (!c) {
		if (fd >= 0)
			close(fd);
		return;
	}
	add(r, c, fd, now_ms);
}

/* There has been no connection for a while: containerd is away, or has gone without the word that ends this program (it
 * gave that up, or ended between `start` and Create). exitd knows, and is waited for. */
void connection_own(struct relay *r, int64_t now_ms)
{
	struct connection *c = calloc(1, sizeof *c);

	r->idle_ms = now_ms + IDLE_MS;
	r->asked++;
	if (!c)
		return;
	add(r, c, -1, now_ms);
	session_own(&c->session, now_ms);
	c->number = ++r->numbers;
	connection_settle(r, c, now_ms);
}

static void over(struct connection *c, int64_t now_ms)
{
	close(c->down.fd);
	c->down.fd = -1;
	session_over(&c->session);
	c->farewell_ms = now_ms + FAREWELL_MS;
}

/* Some of what is there. 0 when there is no more now, -1 at the end. */
static int read_some(struct relay *r, struct connection *c, int64_t now_ms)
{
	ssize_t got = recv(c->down.fd, r->scratch, sizeof r->scratch, 0);

	if (got > 0)
		session_ask(&c->session, r->scratch, (size_t)got, now_ms);
	return got > 0 ? 1 : got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

void connection_read(struct relay *r, struct connection *c, int64_t now_ms)
{
	if (read_some(r, c, now_ms) < 0)
		over(c, now_ms);
	if (c->session.is_used && !c->number)
		c->number = ++r->numbers;
}

/* A client that takes no more may still have asked for the end of this program. */
static void last_words(struct relay *r, struct connection *c, int64_t now_ms)
{
	while (read_some(r, c, now_ms) > 0)
		;
	over(c, now_ms);
}

static void write_down(struct relay *r, struct connection *c, int64_t now_ms)
{
	struct buffer *out = &c->session.to_containerd;

	while (c->down.fd >= 0 && out->end > out->at) {
		ssize_t put = send(c->down.fd, out->data + out->at, out->end - out->at, MSG_NOSIGNAL);

		if (put < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (put < 0)
			return last_words(r, c, now_ms);
		session_given(&c->session, (size_t)put);
	}
}

static uint32_t wanted(const struct buffer *out)
{
	return EPOLLIN | (out->end > out->at ? (uint32_t)EPOLLOUT : 0);
}

/* All that can be done for it without waiting. */
void connection_settle(struct relay *r, struct connection *c, int64_t now_ms)
{
	struct session *s = &c->session;

	session_look(s, now_ms);
	session_witness(s, now_ms);
	courier_report(&r->courier, s);
	write_down(r, c, now_ms);
	if (s->is_broken && c->down.fd >= 0) {
		relay_log(r, "error", "a connection is closed: its replies are not read, or there is no memory");
		over(c, now_ms);
	}
	if (c->up.fd < 0 && c->number && !connection_is_dead(c, now_ms) && now_ms >= r->next_try_ms &&
	    now_ms >= c->tried_ms + RETRY_MS)
		link_open(r, c, now_ms);
	if (c->up.fd >= 0)
		link_write(r, c, now_ms);
	silence_settle(r, c, now_ms);
	write_down(r, c, now_ms);
	end_watch(r, &c->down, wanted(&s->to_containerd));
	end_watch(r, &c->up, wanted(&s->to_exitd));
}

bool connection_is_dead(const struct connection *c, int64_t now_ms)
{
	const struct session *s = &c->session;

	return s->is_over && (s->is_broken || (!s->pending.count && (c->up.fd < 0 || now_ms >= c->farewell_ms)));
}

void connection_free(struct relay *r, struct connection *c)
{
	struct connection **link = &r->first;

	while (*link != c)
		link = &(*link)->next;
	*link = c->next;
	r->count--;
	if (c->up.fd >= 0)
		link_close(c);
	session_free(&c->session);
	free(c);
}

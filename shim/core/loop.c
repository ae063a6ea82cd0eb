/* The loop: whatever is ready is moved, reaped, answered. It ends with init, or with the last of its output. */
#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

enum { WATCHES_MAX = 15 + 4 * CLIENTS_MAX, FOR_EVER = -1, AGAIN_MS = 250 };
enum { UNREAD_LOOK_MS = 1 };

struct watch {
	void (*ready)(struct shim *shim, int which, short events);
	int which;
};

/* What one round waits for: each descriptor, and what is done when it is ready. */
struct round {
	struct pollfd polled[WATCHES_MAX];
	struct watch watches[WATCHES_MAX];
	int count;
};

static void watch(struct round *r, int fd, short events, void (*ready)(struct shim *, int, short), int which)
{
	if (fd < 0)
		return;
	r->polled[r->count] = (struct pollfd){ .fd = fd, .events = events };
	r->watches[r->count++] = (struct watch){ .ready = ready, .which = which };
}

static void on_signal(struct shim *shim, int which, short events)
{
	(void)which, (void)events;
	shim->is_reported |= drain_signals(shim->signal_fd);
	reap_children(shim);
}

/* Its own init a shim reaps; a replacement learns it from the pidfd, which works for any process. */
static void on_init(struct shim *shim, int which, short events)
{
	(void)which, (void)events;
	shim_ended(shim);
}

static void on_memory(struct shim *shim, int which, short events)
{
	(void)which, (void)events;
	memory_look(&shim->memory);
}

static void on_keeper_end(struct shim *shim, int which, short events)
{
	(void)which, (void)events;
	heir_on_end(shim);
}

static void on_keeper_answer(struct shim *shim, int which, short events)
{
	(void)which, (void)events;
	heir_on_answer(shim);
}

static void on_source(struct shim *shim, int which, short events)
{
	(void)events;
	if (streams_move(shim, which) < 0)
		streams_end_source(shim, &shim->streams.source[which]);
}

static void flush(struct shim *shim, struct sink *sink, short events)
{
	if (events & POLLERR)
		sink_close(shim, sink);
	else
		sink_flush(shim, sink);
}

static void on_sink(struct shim *shim, int which, short events)
{
	flush(shim, &shim->streams.source[which].sink, events);
}

static void on_client_out(struct shim *shim, int which, short events)
{
	flush(shim, &shim->streams.client[which].sink[0], events);
}

static void on_client_err(struct shim *shim, int which, short events)
{
	flush(shim, &shim->streams.client[which].sink[1], events);
}

static void on_client(struct shim *shim, int which, short events)
{
	(void)events;
	if (shim->streams.client[which].by_paths)
		isulad_attach(shim, which);
	else
		control_serve(shim, which);
}

static void on_client_in(struct shim *shim, int which, short events)
{
	(void)events;
	stdin_move(shim, &shim->streams.client[which].in);
}

static void on_in_from(struct shim *shim, int which, short events)
{
	(void)which, (void)events;
	stdin_move(shim, &shim->streams.in_from);
}

static void on_stdin(struct shim *shim, int which, short events)
{
	(void)which, (void)events;
	shim->streams.in_full = 0;
}

static void on_listen(struct shim *shim, int which, short events)
{
	(void)events;
	control_accept(shim, which ? shim->isulad.attach_fd : shim->streams.listen_fd, which);
}

static void on_limit(struct shim *shim, int which, short events)
{
	(void)which, (void)events;
	isulad_on_limit(shim);
}

static void on_resize(struct shim *shim, int which, short events)
{
	(void)which, (void)events;
	isulad_on_resize(shim);
}

static short want(const struct sink *sink)
{
	return sink->used ? POLLOUT : 0;
}

/* Without output or input to move, a sink is watched all the same: for a reader that goes. */
static void watch_all(struct shim *shim, struct round *r)
{
	struct streams *s = &shim->streams;
	int takes = s->in_fd >= 0 && !s->in_full;

	r->count = 0;
	watch(r, shim->signal_fd, POLLIN, on_signal, 0);
	watch(r, shim->adopted && !shim->ended ? shim->init_fd : -1, POLLIN, on_init, 0);
	watch(r, shim->memory.fd, POLLPRI, on_memory, 0);
	watch(r, shim->heir.keeper_fd, POLLIN, on_keeper_end, 0);
	watch(r, shim->heir.line_fd, POLLIN, on_keeper_answer, 0);
	for (int i = 0; i < 2; i++) {
		watch(r, streams_wait(shim, i) ? -1 : s->source[i].fd, POLLIN, on_source, i);
		watch(r, s->source[i].sink.fd, want(&s->source[i].sink), on_sink, i);
	}
	watch(r, s->in_full ? s->in_fd : -1, POLLOUT, on_stdin, 0);
	watch(r, takes ? s->in_from.fd : -1, POLLIN, on_in_from, 0);
	for (int i = 0; i < s->client_count; i++) {
		struct client *client = &s->client[i];

		if (client->fd < 0)
			continue;
		watch(r, takes ? client->in.fd : -1, POLLIN, on_client_in, i);
		watch(r, client->sink[0].fd, want(&client->sink[0]), on_client_out, i);
		watch(r, client->sink[1].fd, want(&client->sink[1]), on_client_err, i);
		watch(r, client->by_paths && client->attached ? -1 : client->fd, POLLIN, on_client, i);
	}
	watch(r, shim->isulad.limit_fd, POLLIN, on_limit, 0);
	watch(r, shim->isulad.resize_fd, POLLIN, on_resize, 0);
	if (shim->accept_pauses)
		return;
	/* The last: a place that has become free is not given out in this round. */
	watch(r, s->listen_fd, POLLIN, on_listen, 0);
	watch(r, shim->isulad.attach_fd, POLLIN, on_listen, 1);
}

static int64_t left_ms(int64_t until_ns)
{
	int64_t left_ns = until_ns - now_ns(CLOCK_MONOTONIC);

	return left_ns > 0 ? left_ns / 1000000 + 1 : 0;
}

/* How long there may be waited: for ever while init lives, or its output is held; then until the drain limit, 0 when it
 * has passed. */
static int64_t patience(const struct shim *shim)
{
	if (!shim->ended || shim->streams.hold_until_ns)
		return FOR_EVER;
	return left_ms(shim->ended_ns + (int64_t)shim->plan.drain_ms * 1000000);
}

/* Below 0 is for ever. */
static int64_t sooner(int64_t limit, int64_t other)
{
	return limit < 0 || other < limit ? other : limit;
}

static int timeout_ms(const struct shim *shim)
{
	int64_t limit = patience(shim), due_ns = heir_due_ns(shim);

	if (shim->streams.hold_until_ns)
		limit = sooner(limit, left_ms(shim->streams.hold_until_ns));
	if (shim->streams.dirty)
		limit = sooner(limit, GIVE_BACK_MS);
	if (shim->accept_pauses)
		limit = sooner(limit, AGAIN_MS);
	if (due_ns)
		limit = sooner(limit, left_ms(due_ns));
	return (int)limit;
}

static void do_round(struct shim *shim)
{
	struct round r;
	struct streams *s = &shim->streams;
	int64_t held_ns = s->hold_until_ns;
	int ready;

	if (shim->ended)
		console_let_go(shim);
	stdin_settle(shim);
	isulad_settle(shim);
	heir_settle(shim);
	watch_all(shim, &r);
	ready = poll(r.polled, (nfds_t)r.count, timeout_ms(shim));
	shim->accept_pauses = 0;
	if (ready < 0 && errno != EINTR)	/* ENOMEM: without anything to look at it needs no memory */
		poll(NULL, 0, AGAIN_MS);
	if (!ready)
		streams_give_back(shim);
	for (int i = 0; i < r.count && ready > 0; i++)
		if (r.polled[i].revents)
			r.watches[i].ready(shim, r.watches[i].which, r.polled[i].revents);
	if (s->hold_until_ns && !left_ms(s->hold_until_ns))
		s->hold_until_ns = 0;
	/* What was held back has as much time as if it came now. */
	if (held_ns && !s->hold_until_ns && shim->ended)
		shim->ended_ns = now_ns(CLOCK_MONOTONIC);
}

/* What lies in a client's fifo is lost with the last end that is open. A client that has not come to open its own yet, on
 * a busy machine, has a third of the drain limit to do so; one that has gone delays the clean-up so long. */
static void wait_for_readers(struct shim *shim)
{
	int64_t until_ns = now_ns(CLOCK_MONOTONIC) + (int64_t)shim->plan.drain_ms * 1000000 / 3;

	while (streams_unread(shim) && left_ms(until_ns))
		poll(NULL, 0, UNREAD_LOOK_MS);
}

/* Returns when init has ended; with `drain` when its output has ended too, or the drain limit has passed. */
void loop_run(struct shim *shim, int drain)
{
	reap_children(shim);
	streams_begin(shim);
	heir_begin(shim);
	while (!shim->ended || (drain && streams_busy(shim) && patience(shim)))
		do_round(shim);
	if (!drain)
		return;
	wait_for_readers(shim);
	streams_close(shim);
	control_end(shim);
	logger_end(shim, (int)left_ms(shim->ended_ns + (int64_t)shim->plan.drain_ms * 1000000));
}

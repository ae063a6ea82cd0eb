/* The relay itself: one loop over containerd's connections and exitd's, until it is to leave. */
#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon.h"

enum { BATCH = 32, LEAVE_MS = 1000 };

static int64_t now(void)
{
	return now_ns(CLOCK_MONOTONIC) / 1000000;
}

static int signals(void)
{
	sigset_t wanted;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGUSR1, SIG_IGN);
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGINT);
	sigprocmask(SIG_SETMASK, &wanted, NULL);
	return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* What a large message took goes back to the kernel: glibc learns to keep such blocks, musl does not. */
static void keep_little(void)
{
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, 65536);
	mallopt(M_TRIM_THRESHOLD, 65536);
#endif
}

/* 0; or -1: it cannot serve, and has not begun to. */
static int prepare(struct relay *r)
{
	struct rlimit files;
	struct proc_stat self;
	struct stat file;
	uint64_t random;

	keep_little();
	if (stat(r->socket, &file))
		return -1;
	r->inode = file.st_ino;
	if (getrandom(&random, sizeof random, 0) != sizeof random || proc_stat_read(&self, getpid()))
		return -1;
	snprintf(r->id, sizeof r->id, "%016llx", (unsigned long long)random);
	r->started = self.started;
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	r->signals.fd = signals();
	r->post.fd = -1;
	r->witness.name_space = r->words->name_space;
	r->witness.relay_pid = (int)getpid();
	r->witness.look = watch_look;
	r->courier.witness = &r->witness;
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	r->inits.fd = epoll_create1(EPOLL_CLOEXEC);
	if (r->signals.fd < 0 || r->epoll_fd < 0 || r->inits.fd < 0)
		return -1;
	end_watch(r, &r->signals, EPOLLIN);
	end_watch(r, &r->inits, EPOLLIN);
	end_watch(r, &r->listener, EPOLLIN);
	r->idle_ms = r->awaited_ms = now() + IDLE_MS;
	r->awaited = 1;
	if (write(r->ready_fd, "", 1) != 1)
		return -1;
	close(r->ready_fd);
	return 0;
}

static void sooner(int64_t *at_ms, int64_t other_ms)
{
	*at_ms = other_ms < *at_ms ? other_ms : *at_ms;
}

/* Until something is due by itself; -1: nothing is. */
static int left(const struct relay *r, int64_t now_ms)
{
	int64_t at_ms = r->first ? INT64_MAX : r->idle_ms;

	sooner(&at_ms, post_due_ms(r));
	sooner(&at_ms, watch_due_ms(r));
	if (!r->listener.events)
		sooner(&at_ms, r->next_accept_ms);
	for (const struct connection *c = r->first; c; c = c->next) {
		int64_t try_ms = c->tried_ms + RETRY_MS;

		if (c->session.look_ms)
			sooner(&at_ms, c->session.look_ms);
		if (c->session.overdue_ms)
			sooner(&at_ms, c->session.overdue_ms);
		sooner(&at_ms, silence_due_ms(c, now_ms));
		if (c->session.is_over && !c->session.pending.count)
			sooner(&at_ms, c->farewell_ms);
		else if (c->up.fd < 0 && c->number)
			sooner(&at_ms, try_ms > r->next_try_ms ? try_ms : r->next_try_ms);
	}
	if (at_ms == INT64_MAX)
		return -1;
	return at_ms <= now_ms ? 0 : at_ms - now_ms > 60000 ? 60000 : (int)(at_ms - now_ms);
}

/* Each `start` is followed by a connection with a request, unless containerd ends before. */
static void reckon(struct relay *r, int promised, int64_t now_ms)
{
	if (now_ms >= r->awaited_ms)
		r->awaited = 0;
	if (promised > 0)
		r->awaited_ms = now_ms + IDLE_MS;
	r->awaited += promised;
	if (r->awaited < 0)
		r->awaited = 0;
}

/* How long there has to be no connection before exitd is asked. It may still be removing what the relay has deleted in its
 * place: then it is asked sooner, and ever later. */
static int64_t idle_limit(const struct relay *r)
{
	int64_t soon_ms = (int64_t)SOON_MS << (r->asked < 8 ? r->asked : 8);

	return r->has_deleted && soon_ms < IDLE_MS ? soon_ms : IDLE_MS;
}

static void settle(struct relay *r, int64_t now_ms)
{
	struct connection *next;

	reckon(r, 0, now_ms);
	if (!r->listener.events && now_ms >= r->next_accept_ms)
		end_watch(r, &r->listener, EPOLLIN);
	post_settle(r, now_ms);
	watch_settle(r, now_ms);
	for (struct connection *c = r->first; c; c = next) {
		next = c->next;
		connection_settle(r, c, now_ms);
		r->is_leaving |= c->session.is_leaving != 0;
		c->session.is_leaving = 0;
		reckon(r, c->session.promised, now_ms);
		c->session.promised = 0;
		if (connection_is_dead(c, now_ms))
			connection_free(r, c);
	}
	post_settle(r, now_ms);	/* once more: an end may have been answered that exitd does not bring */
	if (r->first)
		r->idle_ms = now_ms + idle_limit(r);
	else if (now_ms >= r->idle_ms)
		connection_own(r, now_ms);
}

static int dispatch(struct relay *r, const struct epoll_event *event, int64_t now_ms)
{
	struct end *end = event->data.ptr;
	struct connection *c = end->of;

	if (end == &r->signals)
		return 0;
	if (end == &r->listener)
		connection_accept(r, now_ms);
	else if (end == &r->inits)
		watch_read(r, now_ms);
	else if (end == &r->post && r->post.fd >= 0 && event->events & ~(uint32_t)EPOLLOUT)
		post_read(r);
	else if (end == &r->post)
		return 1;
	else if (end->fd >= 0 && event->events & ~(uint32_t)EPOLLOUT && end == &c->down)
		connection_read(r, c, now_ms);
	else if (end->fd >= 0 && event->events & ~(uint32_t)EPOLLOUT)
		link_read(r, c);
	return 1;
}

static bool may_leave(struct relay *r)
{
	int stays = 0;

	for (const struct connection *c = r->first; c; c = c->next)
		stays |= session_stays(&c->session, &r->is_leaving);
	r->is_leaving &= !r->awaited;
	return r->is_leaving && !stays && !r->courier.number;
}

static void remove_socket(struct relay *r)
{
	struct stat file;

	if (!stat(r->socket, &file) && file.st_ino == r->inode)
		unlink(r->socket);
	r->inode = 0;
}

/* Whether this address is not given out any more, and no client that was given it is about to come. The lock is that of
 * `start` and is kept to the end. */
static bool leave(struct relay *r)
{
	struct epoll_event event;
	int lock_fd = place_lock(LEAVE_MS);

	if (lock_fd == -EINTR)
		return false;
	if (epoll_wait(r->epoll_fd, &event, 1, 0) == 0) {
		remove_socket(r);
		return true;
	}
	if (lock_fd >= 0)
		close(lock_fd);
	return false;
}

static void loop(struct relay *r)
{
	struct epoll_event events[BATCH];
	int is_ready = 0;	/* to leave, unless there is something left to read */

	for (;;) {
		int count = epoll_wait(r->epoll_fd, events, BATCH, is_ready ? 0 : left(r, now()));
		int64_t now_ms = now();

		if (count < 0 && errno != EINTR)
			return;
		for (int i = 0; i < count; i++)
			if (!dispatch(r, &events[i], now_ms))
				return;
		settle(r, now_ms);
		if (is_ready && !count && leave(r))
			return;
		is_ready = may_leave(r);
	}
}

/* Exit status. The socket's file goes, unless it is another's by now. */
int daemon_run(struct relay *r)
{
	int error = prepare(r);

	if (!error)
		loop(r);
	remove_socket(r);
	return error ? 1 : 0;
}

/* The socket: one request, one answer, both one SEQPACKET message. Sends never block; a client that does not read its
 * answers is dropped, and so are the queued requests of one that has gone. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "keeper.h"

struct request {
	char text[MESSAGE_MAX];
	size_t size;
	struct passed passed;
};

static void answer(struct keeper *k, int index, const char *text, int size, int fd)
{
	if (message_send(k->clients[index].fd, text, size, fd, MSG_DONTWAIT) < 0)
		serve_drop(k, index);
}

static void refuse(struct keeper *k, int index, const char *why, int error)
{
	struct writer w;
	char text[256];

	writer_open(&w, text, sizeof text, "exitd-refused", 1);
	writer_text(&w, "why", why);
	writer_number(&w, "errno", (uint64_t)-error);
	answer(k, index, text, writer_close(&w), -1);
}

static void ok(struct keeper *k, int index)
{
	struct writer w;
	char text[64];

	writer_open(&w, text, sizeof text, "exitd-ok", 1);
	answer(k, index, text, writer_close(&w), -1);
}

/* The same to a shim, which waits for the end of this process. */
static void ok_known(struct keeper *k, int index)
{
	struct writer w;
	char text[64];

	writer_open(&w, text, sizeof text, "exitd-ok", 1);
	writer_number(&w, "pid", (uint64_t)getpid());
	answer(k, index, text, writer_close(&w), -1);
}

/* The run a request names: id, run, exec. 0 or -EINVAL. */
static int key_of(const struct request *r, const char **id, uint64_t *run, const char **exec)
{
	*id = fields_get(r->text, r->size, "id");
	*exec = fields_get(r->text, r->size, "exec");
	if (!*exec)
		*exec = "";
	return *id && **id && !fields_number(r->text, r->size, "run", run) ? 0 : -EINVAL;
}

static void on_hello(struct keeper *k, int index, struct request *r)
{
	struct writer w;
	char text[8192];

	(void)r;
	k->clients[index].watcher = 1;
	writer_open(&w, text, sizeof text, "exitd-keeper", 1);
	writer_text(&w, "instance", k->instance);
	writer_text(&w, "journal", k->journal_path);
	writer_number(&w, "pid", (uint64_t)getpid());
	writer_number(&w, "runs", (uint64_t)k->run_count);
	writer_number(&w, "seats", SLOTS_END);
	answer(k, index, text, writer_close(&w), -1);
}

struct spawn {
	const char *id;
	const char *exec;
	const char *directory;
	const char *program;
	uint64_t number;
	int adopt;
	int fds[SLOT_COUNT];	/* by slot, -1 where there is none */
	struct run *run;
	int is_new;		/* this request has made it known */
};

/* 0, or -errno and the word for it. */
static int parse_spawn(struct spawn *s, const struct request *r, const char **why)
{
	uint64_t flag = 0;

	*why = "bad request";
	s->directory = fields_get(r->text, r->size, "dir");
	s->program = fields_get(r->text, r->size, "program");
	if (key_of(r, &s->id, &s->number, &s->exec) || !s->directory || !s->program)
		return -EINVAL;
	fields_number(r->text, r->size, "adopt", &flag);
	s->adopt = flag != 0;
	*why = "a slot for each descriptor, the status socket's among them";
	return slots_read(r->text, r->size, r->passed.fds, r->passed.count, s->fds);
}

/* The run's place in the table: 0, or -errno and the word for it. */
static int claim(struct keeper *k, struct spawn *s, const char **why)
{
	s->run = table_find(k, s->id, s->number, s->exec);
	s->is_new = !s->run;
	*why = "run is known";
	if (s->run && !s->adopt)
		return -EEXIST;
	if (s->is_new)
		s->run = table_add(k, s->id, s->number, s->exec);
	*why = "no room in table or journal";
	return s->run ? 0 : -ENOSPC;
}

/* 0, or -errno and the word for it: a run that was not known before is not known then. */
static int start(struct keeper *k, struct spawn *s, struct spawned *out, const char **why)
{
	int error = slots_settle(s->run, s->adopt, s->fds);

	if (!error)
		error = spawn_shim(k, s->run, s->directory, s->program, s->adopt, s->fds, out);
	if (error && s->is_new)
		table_drop(k, s->run);
	*why = "spawn";
	return error;
}

static void reply_spawned(struct keeper *k, int index, const struct spawned *spawned)
{
	struct writer w;
	char text[512];

	writer_open(&w, text, sizeof text, "exitd-spawned", 1);
	writer_number(&w, "pid", (uint64_t)spawned->pid);
	writer_number(&w, "started", spawned->started);
	answer(k, index, text, writer_close(&w), spawned->pidfd);
	close(spawned->pidfd);
}

static void on_spawn(struct keeper *k, int index, struct request *r)
{
	struct spawned spawned = { .pidfd = -1 };
	struct spawn s;
	const char *why;
	int error = parse_spawn(&s, r, &why);

	if (!error) {
		serve_reap(k);
		error = claim(k, &s, &why);
	}
	if (!error)
		error = start(k, &s, &spawned, &why);
	if (error)
		refuse(k, index, why, error);
	else
		reply_spawned(k, index, &spawned);
}

/* A run that another keeper had, or that began without one: what lives registers anew, with what it has. */
static bool is_anew(const struct registration *g)
{
	return g->slot_count || g->shim_pid;
}

/* 0, or -errno and the word for it: nothing of it is known, then, that was not before. */
static int take_over(struct keeper *k, const struct registration *g, struct request *r, struct run **out, const char **why)
{
	struct run *run = table_find(k, g->id, g->run, g->exec);
	int known = run != NULL, error;

	*why = "no room in table or journal";
	if (!known)
		run = table_add(k, g->id, g->run, g->exec);
	if (!run)
		return -ENOSPC;
	*why = "init cannot be watched";
	error = strangers_watch(k, run, g->pid, g->started);
	if (!error) {
		*why = "a slot for each descriptor, and only what is ever kept";
		error = slots_take(run, g->slots, g->slot_count, r->passed.fds, r->passed.count);
	}
	if (error && !known)
		table_drop(k, run);
	if (error)
		return error;
	r->passed.count = 0;
	if (g->shim_pid) {
		run->shim_pid = run->session = g->shim_pid;
		run->shim_started = g->shim_started;
	}
	*out = run;
	return 0;
}

/* With the master of its tty, if it has one: that came into being with init. */
static void take_master(struct run *run, struct request *r)
{
	if (!r->passed.count)
		return;
	if (run->out_fd >= 0)
		close(run->out_fd);
	run->out_fd = r->passed.fds[0];
	r->passed.count = 0;
}

static void on_register(struct keeper *k, int index, struct request *r)
{
	struct registration g;
	struct run *run = NULL;
	const char *why = "unknown run";
	int error = -ENOENT;

	if (registration_read(&g, r->text, r->size) || (!g.pid && !g.shim_pid) || (!is_anew(&g) && r->passed.count > 1))
		return refuse(k, index, "bad request", -EINVAL);
	if (is_anew(&g))
		error = take_over(k, &g, r, &run, &why);
	else if ((run = table_find(k, g.id, g.run, g.exec)))
		error = 0, take_master(run, r);
	if (error)
		return refuse(k, index, why, error);
	if (g.pid) {
		run->init_pid = g.pid;
		run->init_started = g.started;
	} else if (!run->init_pid) {
		run->init_started = 1;	/* a pump's: nothing that begins from now on is its init */
	}
	if (run->outcome == DOUBTFUL)
		run->outcome = WAITING;
	strcpy(run->oom, g.oom);
	ok_known(k, index);
	/* The shim may have died since, and init with it. */
	serve_reap(k);
}

/* Copies that are in the way: as long as one of the input's write end is here, the container waits for more. */
static void on_release(struct keeper *k, int index, struct request *r)
{
	const char *id, *exec;
	uint64_t number;
	struct run *run;

	if (key_of(r, &id, &number, &exec))
		return refuse(k, index, "bad request", -EINVAL);
	run = table_find(k, id, number, exec);
	if (!run)
		return refuse(k, index, "unknown run", -ENOENT);
	if (slots_release(run, r->text, r->size))
		return refuse(k, index, "nothing is kept of that slot", -EINVAL);
	ok(k, index);
}

/* Copies for exitd, each with its slot. */
static void on_copies(struct keeper *k, int index, struct request *r)
{
	int slots[SLOT_COUNT], fds[SLOT_COUNT], count;
	const char *id, *exec;
	uint64_t number;
	struct writer w;
	struct run *run;
	char text[256];

	if (key_of(r, &id, &number, &exec))
		return refuse(k, index, "bad request", -EINVAL);
	run = table_find(k, id, number, exec);
	if (!run)
		return refuse(k, index, "unknown run", -ENOENT);
	count = slots_to_give(run, slots, fds);
	writer_open(&w, text, sizeof text, "exitd-seats", 1);
	for (int i = 0; i < count; i++)
		writer_number(&w, "seat", (uint64_t)slots[i]);
	if (message_send_all(k->clients[index].fd, text, writer_close(&w), fds, count, MSG_DONTWAIT) < 0)
		serve_drop(k, index);
}

static void on_ack(struct keeper *k, int index, struct request *r)
{
	const char *id, *exec;
	uint64_t number;
	struct run *run;

	if (key_of(r, &id, &number, &exec))
		return refuse(k, index, "bad request", -EINVAL);
	run = table_find(k, id, number, exec);
	if (run)
		table_drop(k, run);
	ok(k, index);
}

/* One run per question, by index: the daemon compares tables and neither needs a large buffer. */
static void on_list(struct keeper *k, int index, struct request *r)
{
	struct writer w;
	char text[1024];
	uint64_t at = 0;

	fields_number(r->text, r->size, "at", &at);
	if (at >= (uint64_t)k->run_count)
		return ok(k, index);
	writer_open(&w, text, sizeof text, "exitd-run", 1);
	writer_text(&w, "id", k->runs[at].id);
	writer_number(&w, "run", k->runs[at].run);
	writer_text(&w, "exec", k->runs[at].exec);
	writer_number(&w, "shim_pid", (uint64_t)k->runs[at].shim_pid);
	writer_number(&w, "init_pid", (uint64_t)k->runs[at].init_pid);
	writer_number(&w, "init_started", k->runs[at].init_started);
	writer_number(&w, "doubtful", (uint64_t)(k->runs[at].outcome == DOUBTFUL));
	writer_number(&w, "journalled", (uint64_t)(k->runs[at].outcome == JOURNALLED));
	writer_number(&w, "watched", (uint64_t)(k->runs[at].init_fd >= 0));	/* its end is still to be looked at */
	answer(k, index, text, writer_close(&w), -1);
}

static void on_upgrade(struct keeper *k, int index, struct request *r)
{
	(void)r;
	k->upgrade = 1;
	ok(k, index);
}

static void dispatch(struct keeper *k, int index, struct request *r)
{
	static const struct {
		const char *kind;
		void (*run)(struct keeper *k, int index, struct request *r);
	} requests[] = {
		{ "exitd-hello", on_hello },
		{ "exitd-spawn", on_spawn },
		{ "exitd-register", on_register },
		{ "exitd-release", on_release },
		{ "exitd-copies", on_copies },
		{ "exitd-ack", on_ack },
		{ "exitd-list", on_list },
		{ "exitd-upgrade", on_upgrade },
	};

	for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
		if (fields_check(r->text, r->size, requests[i].kind) > 0)
			return requests[i].run(k, index, r);
	refuse(k, index, "unknown request", -ENOSYS);
}

void serve_client(struct keeper *k, int index)
{
	struct request r;
	/* Above the slots, so that none of them is overwritten when a shim's are filled. */
	ssize_t got = message_receive(k->clients[index].fd, r.text, sizeof r.text, SLOT_COUNT, SLOTS_END, &r.passed);

	if (got == -EAGAIN || got == -EINTR)
		return;
	if (got <= 0)
		return serve_drop(k, index);
	r.size = (size_t)got;
	if (r.passed.error)
		refuse(k, index, r.passed.error == -EMFILE ? "no descriptor left" : "too long, or too many descriptors",
		       r.passed.error);
	else
		dispatch(k, index, &r);
	message_close(&r.passed);
}

void serve_accept(struct keeper *k)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	int fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC);

	/* Left in the queue it would wake us for ever: it is hung up on, or waits for as long as not even that is possible. */
	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
		int gone;

		spare_take(k);
		gone = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		k->accept_pauses = gone < 0;
		if (gone >= 0)
			close(gone);
		spare_give(k);
		return;
	}
	if (fd < 0) {
		k->accept_pauses = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
		return;
	}
	/* The socket's mode says the same; this says it whatever became of the mode. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.uid != geteuid() ||
	    k->client_count == CLIENTS_MAX)
		close(fd);
	else
		k->clients[k->client_count++] = (struct client){ .fd = fd };
}

/* The slot stays, marked, until the loop sweeps: indexes in use must not move under a request. */
void serve_drop(struct keeper *k, int index)
{
	if (k->clients[index].fd >= 0)
		close(k->clients[index].fd);
	k->clients[index].fd = -1;
}

/* "There is something in the journal." A watcher that has unread news needs no more of them. `count` is how many
 * entries are new; with none nothing is said. */
void serve_news(struct keeper *k, int count)
{
	struct writer w;
	char text[64];
	int size;

	if (!count)
		return;
	writer_open(&w, text, sizeof text, "exitd-news", 1);
	size = writer_close(&w);
	for (int i = 0; i < k->client_count; i++)
		if (k->clients[i].watcher && k->clients[i].fd >= 0)
			send(k->clients[i].fd, text, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Reaps what has ended, and says so. */
void serve_reap(struct keeper *k)
{
	serve_news(k, children_reap(k));
}

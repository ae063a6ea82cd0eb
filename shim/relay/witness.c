/* What the relay itself knows of its tasks and their execs: who was made through it, in which state it is, by exitd's word,
 * and how that process ended, from the record that its shim has written. Ends it reports for an exitd that is away or
 * silent, and for nothing else; what has no record waits for exitd. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "relay.h"

enum { UNKNOWN, CREATED, RUNNING, STOPPED, PAUSED };	/* process.Status */
enum { NUMBERS_ROOM = 128 };			/* of a reply, what is no text of the task's */

static bool is(struct text text, const char *word)
{
	return text_same(text, (struct text){ word, strlen(word) });
}

static struct text with_nul(char **at, struct text from)
{
	struct text made = text_copied(at, from);

	*(*at)++ = 0;
	return made;
}

/* The texts of a message by their numbers, those up to `count`; 0 or -EBADMSG. `terminal` is the number 4, if wanted. */
static int texts(struct text message, struct text *out, uint32_t count, int *terminal)
{
	const char *at = message.at, *end = message.at + message.size;
	struct field field;
	int more;

	for (uint32_t i = 0; i <= count; i++)
		out[i] = (struct text){ "", 0 };
	while ((more = proto_next(&at, end, &field)) > 0) {
		if (field.is_text && field.number <= count)
			out[field.number] = field.text;
		if (terminal && !field.is_text && field.number == 4)
			*terminal = field.value != 0;
	}
	return more;
}

static struct task *find(const struct witness *w, struct text id, struct text exec)
{
	struct task *t = w->first;

	while (t && (t->stage == TASK_GONE || !text_same(t->id, id) || !text_same(t->exec, exec)))
		t = t->next;
	return t;
}

static void go_to(struct witness *w, struct task *t, int stage)
{
	w->ended += (stage == TASK_ENDED) - (t->stage == TASK_ENDED);
	w->count -= stage == TASK_GONE && t->stage != TASK_GONE;
	t->stage = stage;
}

/* An exec, or a task and all of its execs. */
static void forget(struct witness *w, struct text id, struct text exec)
{
	for (struct task *t = w->first; t; t = t->next)
		if (t->stage != TASK_GONE && text_same(t->id, id) && (!exec.size || text_same(t->exec, exec)))
			go_to(w, t, TASK_GONE);
}

static size_t size_of_texts(const struct task *t)
{
	return t->id.size + t->exec.size + t->bundle.size + t->record.size + t->in.size + t->out.size + t->err.size;
}

/* One as `of` has it, with texts of its own. Without memory, or beyond TASKS_MAX, only exitd knows of it. */
static void add(struct witness *w, const struct task *of)
{
	enum { TEXTS = 7 };
	struct task *t = w->count < TASKS_MAX ? calloc(1, sizeof *t + size_of_texts(of) + TEXTS) : NULL;
	char *at;

	if (!t)
		return;
	at = (char *)(t + 1);
	*t = *of;
	t->id = with_nul(&at, of->id);
	t->exec = with_nul(&at, of->exec);
	t->bundle = with_nul(&at, of->bundle);
	t->record = with_nul(&at, of->record);
	t->in = with_nul(&at, of->in);
	t->out = with_nul(&at, of->out);
	t->err = with_nul(&at, of->err);
	t->init_fd = -1;
	t->number = ++w->numbers;
	t->next = w->first;
	w->first = t;
	w->count++;
}

static const struct text nothing = { "", 0 };

/* exitd has made a task of this Create, or a sandbox of this CreateSandbox: id and bundle are the same fields. */
void witness_made(struct witness *w, struct text create, int is_sandbox)
{
	struct text of[8] = { nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing };
	int terminal = 0;

	if (texts(create, of, is_sandbox ? 2 : 7, &terminal))
		return;
	forget(w, of[1], nothing);
	add(w, &(struct task){ .id = of[1], .exec = nothing, .bundle = of[2], .record = nothing, .in = of[5], .out = of[6],
			       .err = of[7], .terminal = terminal, .is_sandbox = is_sandbox, .status = CREATED });
}

/* The value of a field, "" without one. */
static struct text value(struct text message, const char *key)
{
	const char *found = fields_get(message.at, message.size, key);

	return found ? (struct text){ found, strlen(found) } : nothing;
}

/* An exec has begun: exitd's word, before it answers the Start. */
void witness_exec(struct witness *w, struct text begun)
{
	uint64_t pid, started;
	struct task of;

	if (begun.size > EXEC_MAX || fields_check(begun.at, begun.size, "exec") <= 0 ||
	    fields_number(begun.at, begun.size, "pid", &pid) || pid <= 1 || pid > INT32_MAX ||
	    fields_number(begun.at, begun.size, "started", &started))
		return;
	of = (struct task){ .id = value(begun, "id"), .exec = value(begun, "exec"), .bundle = value(begun, "bundle"),
			    .record = value(begun, "record"), .in = value(begun, "stdin"), .out = value(begun, "stdout"),
			    .err = value(begun, "stderr"), .terminal = is(value(begun, "terminal"), "1"),
			    .status = RUNNING, .seen = { .pid = (int)pid, .started = started } };
	if (!of.id.size || !of.exec.size || !of.record.size)
		return;
	forget(w, of.id, of.exec);
	add(w, &of);
}

/* The task, or the exec, that a request names; NULL for one that is not known here. */
struct task *witness_named(const struct witness *w, struct text payload)
{
	struct text of[3];

	return texts(payload, of, 2, NULL) ? NULL : find(w, of[1], of[2]);
}

/* exitd, or the relay, has deleted it: its watcher lets go of it. */
void witness_gone(struct witness *w, struct text payload)
{
	struct text of[3];

	if (!texts(payload, of, 2, NULL))
		forget(w, of[1], of[2]);
}

/* The steps of a task, in the order in which they come. */
void witness_watched(struct witness *w, struct task *t, int pid, uint64_t started, int init_fd)
{
	t->seen.pid = pid;
	t->seen.started = started;
	t->init_fd = init_fd;
	go_to(w, t, TASK_WATCHED);
}

/* init has ended. Its record is looked for a moment later: as a rule exitd has reported it by then, and a reader of
 * the output has READ_MS for the rest of it before a Wait is answered. */
void witness_dead(struct witness *w, struct task *t, int64_t now_ms)
{
	t->due_ms = now_ms + READ_MS;
	go_to(w, t, TASK_DEAD);
}

/* What its shim has recorded. A record that does not say that the program was executed is exitd's to judge. */
void witness_read(struct witness *w, struct task *t, const struct seen *seen)
{
	if (seen->began != 1)
		return witness_unread(w, t);
	t->seen = *seen;
	go_to(w, t, TASK_ENDED);
}

/* Nothing is to be read of it, now or later: that is exitd's to find out. */
void witness_unread(struct witness *w, struct task *t)
{
	go_to(w, t, TASK_UNKNOWN);
}

void witness_put_time(struct writer *w, int number, int64_t realtime_ns)
{
	char stamp[32];
	struct writer t = { .data = stamp, .size = sizeof stamp };

	proto_number(&t, 1, (uint64_t)(realtime_ns / 1000000000));
	proto_number(&t, 2, (uint64_t)(realtime_ns % 1000000000));
	proto_text(w, number, stamp, t.used);
}

/* Everywhere the time is the field behind the status. */
void witness_put_end(struct writer *w, const struct seen *seen, int status_at)
{
	proto_number(w, status_at, (uint64_t)seen->status);
	witness_put_time(w, status_at + 1, seen->realtime_ns);
}

/* A DeleteResponse. */
void witness_deleted(struct writer *w, const struct seen *seen)
{
	proto_number(w, 1, (uint64_t)seen->pid);
	witness_put_end(w, seen, 2);
}

static void put_text(struct writer *w, int number, struct text text)
{
	if (text.size)
		proto_text(w, number, text.at, text.size);
}

static void put_state(struct writer *w, const struct task *t, int status)
{
	put_text(w, 1, t->id);
	put_text(w, 2, t->bundle);
	proto_number(w, 3, (uint64_t)t->seen.pid);
	proto_number(w, 4, (uint64_t)status);
	put_text(w, 5, t->in);
	put_text(w, 6, t->out);
	put_text(w, 7, t->err);
	proto_number(w, 8, (uint64_t)t->terminal);
	if (t->stage == TASK_ENDED)
		witness_put_end(w, &t->seen, 9);
	put_text(w, 11, t->exec);
}

/* A SandboxStatusResponse; when it was made only exitd knows. */
static void put_status(struct writer *w, const struct task *t)
{
	int is_ready = t->stage == TASK_WATCHED && (t->status == RUNNING || t->status == PAUSED);
	const char *state = is_ready ? "SANDBOX_READY" : "SANDBOX_NOTREADY";

	put_text(w, 1, t->id);
	proto_number(w, 2, (uint64_t)t->seen.pid);
	proto_text(w, 3, state, strlen(state));
	if (t->stage == TASK_ENDED)
		witness_put_time(w, 6, t->seen.realtime_ns);
}

static size_t room_of(const struct task *t)
{
	return NUMBERS_ROOM + size_of_texts(t);
}

static int success(const struct task *t, const struct request *r, char *out, size_t room)
{
	struct writer inner = { .data = malloc(room_of(t)), .size = room_of(t) }, whole = { .data = out, .size = room };

	if (!inner.data)
		return 0;
	if (r->kind == CALL_WAIT)
		witness_put_end(&inner, &t->seen, 1);
	else if (r->kind == CALL_DELETE && !r->is_of_sandbox)
		witness_deleted(&inner, &t->seen);
	else if (r->kind != CALL_DELETE && r->is_of_sandbox)
		put_status(&inner, t);
	else if (r->kind != CALL_DELETE)
		put_state(&inner, t, STOPPED);
	proto_text(&whole, 2, inner.data, inner.used);
	free(inner.data);
	return inner.overflow || whole.overflow ? 0 : (int)whole.used;
}

/* A signal to all processes succeeds: none is left to get it. */
static int no_process(const struct request *r, char *out, size_t room)
{
	const char *at = r->payload.at, *end = r->payload.at + r->payload.size;
	struct field field;
	int everyone = 0;

	while (proto_next(&at, end, &field) > 0)
		if (!field.is_text && field.number == 4)
			everyone = field.value != 0;
	return everyone ? 0 : response_error(out, room, CODE_NOT_FOUND, "process already finished: not found");
}

/* exitd's events come first (a sandbox has none), and exitd has to hear of it when it is back, whatever becomes of the
 * relay. An exec's goes with its task's, and its Delete is repeated to exitd. */
static bool may_delete(struct task *t)
{
	if (t->exec.size)
		return true;
	t->is_wanted |= t->is_sandbox || t->taken & NEWS_EXIT;
	return t->is_wanted && t->is_noted;
}

/* Whether its answer tells in which state the task is. */
static bool is_of_state(const struct request *r)
{
	return is(r->method, "State") || is(r->method, "SandboxStatus") || is(r->method, "PingSandbox");
}

/* The answer in exitd's place to a request of a task: its size, in memory that the caller frees; -ENOENT where exitd has
 * to answer. */
int witness_answer(struct task *t, const struct request *r, char **out)
{
	size_t room = room_of(t) + NUMBERS_ROOM;
	int size;

	*out = NULL;
	if (t->stage != TASK_ENDED || r->kind == CALL_OTHER || (r->kind == CALL_LOOK && !is_of_state(r)))
		return -ENOENT;
	t->is_reported = 1;
	if (r->kind == CALL_DELETE && !may_delete(t))
		return -ENOENT;
	*out = malloc(room);
	if (!*out)
		return -ENOENT;
	if (is(r->method, "PingSandbox"))
		size = response_error(*out, room, CODE_FAILED_PRECONDITION, "the sandbox has ended");
	else
		size = r->kind == CALL_KILL ? no_process(r, *out, room) : success(t, r, *out, room);
	return size || r->kind == CALL_KILL ? size : -ENOENT;
}

/* exitd has started it, halted it, let it go on, or has reported its end: who knows of that does not hear that it runs. */
void witness_turned(struct witness *w, const struct request *r)
{
	struct task *t = witness_named(w, r->payload);

	if (t)
		t->status = r->kind == CALL_WAIT ? UNKNOWN : is(r->method, "Pause") ? PAUSED : RUNNING;
}

static int status_named(struct text word)
{
	static const char *const words[] = { [CREATED] = "created", [RUNNING] = "running", [PAUSED] = "paused" };

	for (int i = CREATED; i <= PAUSED; i++)
		if (words[i] && is(word, words[i]))
			return i;
	return UNKNOWN;
}

/* Its state at this moment, UNKNOWN where exitd is about to change it or it was never said; -ESRCH unless it is watched and
 * lives. */
static int state_of(const struct witness *w, const struct task *t)
{
	char word[16];
	int size = t->stage != TASK_WATCHED ? -ESRCH : w->look ? w->look(t, word, sizeof word) : 0;

	if (size < 0 || !t->state_path)
		return size < 0 ? size : t->status;
	return status_named((struct text){ word, (size_t)size });
}

/* Whether a reply says that nothing lives any more: it stays true until the Delete. */
static bool is_of_end(const struct request *r, struct text reply)
{
	struct text payload;
	const char *at, *end;
	struct field field;

	if (response_code(reply.at, reply.size, &payload))
		return false;
	for (at = payload.at, end = at + payload.size; proto_next(&at, end, &field) > 0;)
		if (r->is_of_sandbox ? field.number == 3 && field.is_text && is(field.text, "SANDBOX_NOTREADY") :
				       field.number == 4 && !field.is_text && field.value == STOPPED)
			return true;
	return false;
}

/* Whether exitd's last reply to this request may be given in its place. It is not said of who may have ended that he lives,
 * and what exitd says of its own accord counts more than what it answered once. */
bool witness_allows(const struct witness *w, const struct request *r, struct text reply)
{
	const struct task *t = is_of_state(r) ? witness_named(w, r->payload) : NULL;
	int state = t ? state_of(w, t) : 0;

	return !t || (state < 0 ? is_of_end(r, reply) : !t->state_path || !is(r->method, "State"));
}

/* Whether the answer to this is the relay's to know as well as exitd's, as long as the task lives. */
static bool is_vouched(const struct task *t, const struct request *r)
{
	return !t->exec.size && (is(r->method, "Connect") || (is(r->method, "State") && t->state_path));
}

/* A State, Pids or Connect of a task whose init is known: as witness_answer. exitd has never been asked for it, and containerd
 * has to hear whether a task is there, and lives: else it gives a living one up. `is_asked`: exitd is
 * there, and answers what is not certain. */
int witness_last(const struct witness *w, const struct request *r, int is_asked, char **out)
{
	const struct task *t = r->kind == CALL_LOOK ? witness_named(w, r->payload) : NULL;
	int state = t && t->seen.pid && (!is_asked || is_vouched(t, r)) ? state_of(w, t) : -ESRCH;
	char pid[16];
	struct writer inner = { 0 }, whole = { 0 }, process = { .data = pid, .size = sizeof pid };

	*out = NULL;
	if (!t || !t->seen.pid || (state < 0 && is_asked) || (state <= UNKNOWN && is_of_state(r)))
		return -ENOENT;
	if (is(r->method, "Platform") || (is(r->method, "PingSandbox") && !t->is_sandbox))
		return -ENOENT;
	inner = (struct writer){ .data = malloc(room_of(t)), .size = room_of(t) };
	whole = (struct writer){ .data = malloc(room_of(t) + NUMBERS_ROOM), .size = room_of(t) + NUMBERS_ROOM };
	proto_number(&process, 1, (uint64_t)t->seen.pid);
	if (inner.data && is(r->method, "State"))
		put_state(&inner, t, state);
	if (inner.data && is(r->method, "SandboxStatus"))
		put_status(&inner, t);
	if (inner.data && is(r->method, "Pids"))
		proto_text(&inner, 1, pid, process.used);
	if (inner.data && is(r->method, "Connect"))
		proto_number(&inner, 1, (uint64_t)w->relay_pid), proto_number(&inner, 2, (uint64_t)t->seen.pid);
	if (inner.data && whole.data)
		proto_text(&whole, 2, inner.data, inner.used);
	free(inner.data);
	*out = whole.data;
	return whole.used && !inner.overflow && !whole.overflow ? (int)whole.used : -ENOENT;
}

/* One connection of containerd and the one to exitd that belongs to it: every request is answered once, whatever
 * becomes of exitd meanwhile. Bytes come in, bytes wait in two buffers to go out. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay.h"

void session_init(struct session *s, struct cache *cache)
{
	*s = (struct session){ .cache = cache };
	pending_init(&s->pending);
}

static void free_notes(struct session *s)
{
	while (s->given) {
		struct note *first = s->given;

		s->given = first->next;
		free(first);
	}
}

void session_free(struct session *s)
{
	reader_next(&s->from_containerd);
	reader_next(&s->from_exitd);
	buffer_free(&s->to_containerd);
	buffer_free(&s->to_exitd);
	pending_clear(&s->pending);
	free_notes(s);
}

static void frame(struct session *s, struct buffer *to, int type, uint32_t stream, struct text data)
{
	char head[FRAME_HEAD];

	frame_head(head, (uint32_t)data.size, stream, type);
	if (buffer_put(to, head, sizeof head) || buffer_put(to, data.at, data.size))
		s->is_broken = 1;
}

static void give(struct session *s, uint32_t stream, struct text reply)
{
	if (s->is_over || s->is_broken)
		return;
	frame(s, &s->to_containerd, FRAME_RESPONSE, stream, reply);
	s->put += FRAME_HEAD + reply.size;
	if (s->to_containerd.end - s->to_containerd.at > UNREAD_MAX)
		s->is_broken = 1;
}

static void refuse(struct session *s, uint32_t stream, int code, const char *why)
{
	char data[256];
	int size = response_error(data, sizeof data, code, why);

	give(s, stream, (struct text){ data, size > 0 ? (size_t)size : 0 });
}

static void refuse_length(struct session *s, const struct reader *r)
{
	char why[96];

	snprintf(why, sizeof why, "message length %u exceed maximum message size of %d", (unsigned)r->length, FRAME_MAX);
	refuse(s, r->stream, CODE_RESOURCE_EXHAUSTED, r->length > FRAME_MAX ? why : "no memory");
}

/* Replies that tell in which state a task is, or a sandbox. */
static const char *const states[] = { "State", "SandboxStatus", "PingSandbox" };

/* It has changed, or is known to have: Start, Pause, Resume, Wait and Delete name it by the same bytes as State, and the calls
 * of a sandbox likewise. */
static void is_otherwise(struct session *s, const struct request *r)
{
	if (r->kind == CALL_DELETE)
		cache_forget(s->cache, r->payload);
	else if (r->kind == CALL_TURN || r->kind == CALL_WAIT)
		for (size_t i = 0; i < sizeof states / sizeof *states; i++)
			cache_drop(s->cache, (struct text){ states[i], strlen(states[i]) }, r->payload);
	if (s->witness && (r->kind == CALL_TURN || r->kind == CALL_WAIT))
		witness_turned(s->witness, r);
	if (s->witness && r->kind == CALL_CREATE)
		witness_made(s->witness, r->payload, r->is_of_sandbox);
	if (s->witness && r->kind == CALL_DELETE)
		witness_gone(s->witness, r->payload);
}

/* In exitd's place. Its own reply to what it has been sent is still waited for, and so is that to what it has to hear of in
 * any case: a Shutdown, by which the relay may end, and the Delete of an exec, of which it is left no other word. */
static void stand_in(struct session *s, struct request *r, struct text reply)
{
	give(s, r->stream, reply);
	if (r->sent || r->owed)
		r->answered = 1;
	else
		pending_drop(&s->pending, r);
}

/* Whether it is answered by what the relay has seen of the task's end. */
static bool from_witness(struct session *s, struct request *r)
{
	struct task *t = s->witness && s->witness->ended && !r->answered ? witness_named(s->witness, r->payload) : NULL;
	char *reply;
	int size;

	if (!t)
		return false;
	size = witness_answer(t, r, &reply);
	if (size >= 0 && r->kind == CALL_DELETE) {
		r->owed = t->exec.size > 0;
		t->is_deleted = 1;
		is_otherwise(s, r);
	}
	if (size >= 0)
		stand_in(s, r, (struct text){ reply, (size_t)size });
	free(reply);
	return size >= 0;
}

/* Whether it is answered by what the relay knows of a task that lives: while exitd is there, what exitd would say. */
static bool from_life(struct session *s, struct request *r, int is_asked)
{
	char *reply = NULL;
	int size = s->witness ? witness_last(s->witness, r, is_asked, &reply) : -ENOENT;

	if (size >= 0)
		stand_in(s, r, (struct text){ reply, (size_t)size });
	free(reply);
	return size >= 0;
}

/* Whether it is answered as the relay has seen it end, or as exitd last did. */
static bool from_memory(struct session *s, struct request *r)
{
	const struct cached *known;

	if (r->kind != CALL_LOOK || r->answered)
		return r->answered;
	if (from_witness(s, r))
		return true;
	known = cache_find(s->cache, r->method, r->payload);
	if (!known || (s->witness && !witness_allows(s->witness, r, known->reply)))
		return from_life(s, r, 0);
	stand_in(s, r, known->reply);
	return true;
}

static void request(struct session *s, struct reader *in, int64_t now_ms)
{
	struct request *r, *same = pending_find(&s->pending, in->stream);

	if (in->length && !in->data)
		return refuse_length(s, in);
	if (in->stream % 2 == 0 || same)
		return refuse(s, in->stream, CODE_INVALID_ARGUMENT, "stream id is even, or not free yet");
	if (!pending_takes(&s->pending, in->length))
		pending_drop_answered(&s->pending);
	if (!pending_takes(&s->pending, in->length))
		return refuse(s, in->stream, CODE_UNAVAILABLE, "too many requests are waiting for exitd");
	r = request_new(in->stream, in->data, in->length, now_ms);
	in->data = NULL;
	if (!r)
		return refuse(s, in->stream, CODE_RESOURCE_EXHAUSTED, "no memory");
	s->promised -= !s->is_used;
	s->is_used = 1;
	pending_add(&s->pending, r);
	if (s->is_up ? from_life(s, r, 1) : from_memory(s, r))
		return;
	if (r->kind == CALL_LOOK && !s->look_ms)
		s->look_ms = now_ms + SILENCE_MS;
}

/* Bytes of containerd. What is no request has no meaning here, as with every server of tasks, and is passed over. */
void session_ask(struct session *s, const char *data, size_t size, int64_t now_ms)
{
	struct reader *in = &s->from_containerd;
	int whole;

	for (size_t at = 0; at < size;) {
		at += reader_feed(in, data + at, size - at, &whole);
		if (!whole)
			continue;
		if (in->type == FRAME_REQUEST)
			request(s, in, now_ms);
		s->promised += in->type == FRAME_SOON;
		reader_next(in);
	}
}

static void note(struct session *s, uint32_t stream, int flags)
{
	struct note *made = malloc(sizeof *made), **link = &s->given;

	if (!made) {
		s->is_broken = 1;
		return;
	}
	*made = (struct note){ .end = s->put, .stream = stream, .flags = flags };
	while (*link)
		link = &(*link)->next;
	*link = made;
}

static void bye(struct session *s)
{
	frame(s, &s->to_exitd, FRAME_BYE, 0, (struct text){ "", 0 });
}

static void response(struct session *s, struct reader *in)
{
	struct request *r = pending_find(&s->pending, in->stream);
	struct text reply = { in->data ? in->data : "", in->data ? in->length : 0 }, payload;
	bool is_good;

	if (s->is_over || (r && r->answered))
		s->is_leaving |= in->flags & REPLY_LEAVE;
	if (!r || !r->sent)
		return;
	if (in->length && !in->data) {
		if (!r->answered)
			refuse_length(s, in);
		return pending_drop(&s->pending, r);
	}
	is_good = response_code(reply.at, reply.size, &payload) == 0;
	if ((r->kind == CALL_LOOK && in->flags & REPLY_CACHEABLE) || (r->kind == CALL_STATS && is_good))
		cache_put(s->cache, r->method, r->payload, reply);
	if (r->kind != CALL_LOOK && is_good)
		is_otherwise(s, r);
	if (!r->answered) {
		give(s, r->stream, reply);
		if (in->flags & (REPLY_KEEP | REPLY_LEAVE) && !s->is_over)
			note(s, r->stream, in->flags);
	}
	pending_drop(&s->pending, r);
	if (s->is_over && !s->pending.count)
		bye(s);
}

/* Bytes of exitd. */
void session_answer(struct session *s, const char *data, size_t size)
{
	struct reader *in = &s->from_exitd;
	int whole;

	for (size_t at = 0; at < size;) {
		at += reader_feed(in, data + at, size - at, &whole);
		if (!whole)
			continue;
		if (in->type == FRAME_RESPONSE)
			response(s, in);
		else if (in->type == FRAME_EVENT && s->courier)
			courier_offer(s->courier, s, in);
		else if (in->type == FRAME_EXEC && s->witness && in->data)
			witness_exec(s->witness, (struct text){ in->data, in->length });
		reader_next(in);
	}
}

static void tell(struct session *s, uint32_t stream)
{
	frame(s, &s->to_exitd, FRAME_DONE, stream, (struct text){ "", 0 });
}

/* There is a connection to exitd: who this is, what containerd was given (the last DONEs may not have arrived, and
 * hearing one twice does no harm), and then the requests. */
void session_up(struct session *s, const char *hello, size_t size, int64_t now_ms)
{
	s->is_up = 1;
	s->away_ms = 0;
	frame(s, &s->to_exitd, FRAME_HELLO, 0, (struct text){ hello, size });
	for (size_t i = s->done_count > DONE_MAX ? s->done_count - DONE_MAX : 0; i < s->done_count; i++)
		tell(s, s->done[i % DONE_MAX]);
	for (struct request *r = s->pending.first; r; r = r->next)
		r->silent_ms = now_ms;
	s->look_ms = now_ms + SILENCE_MS;
	session_fill(s, now_ms);
}

/* It has not taken in all that it was sent, or has not even taken the connection: what it has ended by is none of it. */
void session_unheard(struct session *s)
{
	for (struct request *r = s->pending.first; r; r = r->next)
		r->sent = 0;
}

/* It is gone, and everything that it said has been read. */
void session_down(struct session *s)
{
	s->is_up = 0;
	s->look_ms = 0;
	s->event = 0;
	reader_next(&s->from_exitd);
	buffer_free(&s->to_exitd);
	pending_drop_answered(&s->pending);
	s->pending.unsent = s->pending.first;
	for (struct request *r = s->pending.first, *next; r; r = next) {
		next = r->next;
		r->ends += r->sent ? 1 : 0;
		r->sent = 0;
		if (from_memory(s, r) || r->kind == CALL_WAIT || s->is_over || r->ends < ENDS_MAX)
			continue;
		refuse(s, r->stream, CODE_UNAVAILABLE, "exitd ended twice while it answered this");
		pending_drop(&s->pending, r);
	}
}

static void say_again(struct session *s, const struct request *r, int64_t now_ms)
{
	int64_t age = now_ms - r->arrived_ms;
	char data[8], head[FRAME_HEAD];

	age = age < 0 ? 0 : age > UINT32_MAX ? UINT32_MAX : age;
	frame_head(head, r->attempts, (uint32_t)age, 0);
	memcpy(data, head, sizeof data);	/* two numbers, as a head begins */
	frame(s, &s->to_exitd, FRAME_AGAIN, r->stream, (struct text){ data, sizeof data });
}

/* The next requests, as long as exitd takes them; each whole once it is begun. */
void session_fill(struct session *s, int64_t now_ms)
{
	struct request *r;

	while (s->is_up && (r = s->pending.unsent) && s->to_exitd.end - s->to_exitd.at < FILL_BYTES) {
		s->pending.unsent = r->next;
		r->sent = 1;
		if (r->attempts < UINT32_MAX)
			r->attempts++;
		if (r->attempts > 1)
			say_again(s, r, now_ms);
		frame(s, &s->to_exitd, FRAME_REQUEST, r->stream, (struct text){ r->data ? r->data : "", r->length });
	}
}

/* exitd is there and has been silent for so long that what it said last has to do, where there is something. */
void session_look(struct session *s, int64_t now_ms)
{
	if (!s->look_ms || now_ms < s->look_ms)
		return;
	s->look_ms = 0;
	for (struct request *r = s->pending.first, *next; r; r = next) {
		next = r->next;
		if (r->kind != CALL_LOOK || r->answered || now_ms >= r->silent_ms + SILENCE_MS)
			from_memory(s, r);
		else if (!s->look_ms || r->silent_ms + SILENCE_MS < s->look_ms)
			s->look_ms = r->silent_ms + SILENCE_MS;
	}
}

/* How long a request waits for an exitd that is away, and for one that is silent; without the latter it waits for ever. */
static const struct { int64_t away_ms; int64_t silent_ms; } patience[CALLS] = {
	[CALL_LOOK] = { 0, SILENCE_MS },
	[CALL_WAIT] = { AWAY_MS, OVERDUE_MS },
	[CALL_KILL] = { AWAY_MS, OVERDUE_MS },
	[CALL_DELETE] = { AWAY_MS, DELETE_MS },
	[CALL_STATS] = { AWAY_MS, STATS_MS },
	[CALL_SHUTDOWN] = { AWAY_MS, SHUTDOWN_MS },
};

/* What is asked of an end is not overdue before the end has been read. */
static int64_t overdue(const struct session *s, const struct request *r)
{
	const struct task *t = r->kind == CALL_STATS || r->kind == CALL_SHUTDOWN ||
		(r->kind != CALL_LOOK && !s->witness->ended) ? NULL : witness_named(s->witness, r->payload);
	int64_t since_ms = t && r->kind != CALL_LOOK && t->due_ms > r->silent_ms ? t->due_ms : r->silent_ms;

	if (!patience[r->kind].silent_ms || r->answered)
		return 0;
	if (r->kind != CALL_STATS && r->kind != CALL_SHUTDOWN &&
	    (!t || (t->stage != TASK_ENDED && (r->kind != CALL_LOOK || t->stage != TASK_WATCHED))))
		return 0;
	if (r->kind == CALL_DELETE && t->is_noted) /* exitd will give the task up: it is the relay's to delete */
		return 1;
	return s->is_up ? since_ms + patience[r->kind].silent_ms : s->away_ms + patience[r->kind].away_ms;
}

/* Of what has ended the last numbers are all that there will be; of what lives they would be taken for the present ones. */
static void give_stats(struct session *s, struct request *r)
{
	const struct task *t = s->witness->ended ? witness_named(s->witness, r->payload) : NULL;
	const struct cached *last = t && t->stage == TASK_ENDED ? cache_find(s->cache, r->method, r->payload) : NULL;
	char data[128];
	int size = response_error(data, sizeof data, CODE_UNAVAILABLE, "exitd is away");

	stand_in(s, r, last ? last->reply : (struct text){ data, size > 0 ? (size_t)size : 0 });
}

static void stand_in_for(struct session *s, struct request *r)
{
	if (r->kind == CALL_STATS) {
		give_stats(s, r);
	} else if (r->kind == CALL_SHUTDOWN) {
		r->owed = 1;
		stand_in(s, r, (struct text){ "", 0 });
	} else if (!from_memory(s, r)) {
		from_witness(s, r);
	}
}

/* The relay answers what exitd, which is away or silent, does not: of ends that it has seen, and where waiting harms. */
void session_witness(struct session *s, int64_t now_ms)
{
	s->overdue_ms = 0;
	if (!s->is_up && !s->away_ms)
		s->away_ms = now_ms;
	if (!s->witness || s->is_over)
		return;
	for (struct request *r = s->pending.first, *next; r; r = next) {
		int64_t at_ms = overdue(s, r);

		next = r->next;
		if (at_ms > now_ms && (!s->overdue_ms || at_ms < s->overdue_ms))
			s->overdue_ms = at_ms;
		else if (at_ms && at_ms <= now_ms)
			stand_in_for(s, r);
	}
}

/* Since when exitd, which is there, owes statistics; 0: it owes none. */
int64_t session_owes(const struct session *s)
{
	int64_t since_ms = 0;

	for (const struct request *r = s->is_up && !s->is_over ? s->pending.first : NULL; r; r = r->next)
		if (r->kind == CALL_STATS && !r->answered && (!since_ms || r->silent_ms < since_ms))
			since_ms = r->silent_ms;
	return since_ms;
}

/* It takes nothing in: those are not waited for. */
void session_silent(struct session *s)
{
	for (struct request *r = s->witness ? s->pending.first : NULL, *next; r; r = next) {
		next = r->next;
		if (r->kind == CALL_STATS && !r->answered)
			give_stats(s, r);
	}
}

/* containerd's socket took `size` bytes more. */
void session_given(struct session *s, size_t size)
{
	buffer_take(&s->to_containerd, size);
	s->taken += size;
	while (s->given && s->given->end <= s->taken) {
		struct note *first = s->given;

		s->given = first->next;
		s->is_leaving |= first->flags & REPLY_LEAVE;
		if (first->flags & REPLY_KEEP) {
			s->done[s->done_count++ % DONE_MAX] = first->stream;
			if (s->is_up)
				tell(s, first->stream);
		}
		free(first);
	}
}

/* containerd is gone, and nothing that it asked matters any more, but for what exitd has to hear of all the same, and a
 * Shutdown, which may be what this program ends by. */
void session_over(struct session *s)
{
	for (struct request *r = s->pending.first, *next; r; r = next) {
		next = r->next;
		if (r->kind != CALL_SHUTDOWN && !r->owed)
			pending_drop(&s->pending, r);
	}
	for (struct note *each = s->given; each; each = each->next)
		s->is_leaving |= each->flags & REPLY_LEAVE;
	buffer_free(&s->to_containerd);
	free_notes(s);
	s->look_ms = 0;
	s->is_over = 1;
	s->is_broken = 0;
	if (s->is_up && !s->pending.count)
		bye(s);
}

/* One without containerd: a Shutdown of the relay's own, which asks exitd whether any task is left. */
void session_own(struct session *s, int64_t now_ms)
{
	static const char service[] = "containerd.task.v2.Task", method[] = "Shutdown";
	char data[FRAME_HEAD + 64];
	struct writer w = { .data = data + FRAME_HEAD, .size = sizeof data - FRAME_HEAD };

	proto_text(&w, 1, service, sizeof service - 1);
	proto_text(&w, 2, method, sizeof method - 1);
	frame_head(data, (uint32_t)w.used, 1, FRAME_REQUEST);
	session_ask(s, data, FRAME_HEAD + w.used, now_ms);
	session_over(s);
}

/* Whether the relay is needed here for now, though exitd said that no task is left (`is_leaving`): containerd has just
 * connected, or waits for an answer that is on its way. A Wait has none, and a Create may have made a task since: then
 * that word counts no more. */
bool session_stays(const struct session *s, int *is_leaving)
{
	int stays = !s->is_over && !s->is_used;

	for (const struct request *r = s->is_over ? NULL : s->pending.first; r; r = r->next) {
		stays |= r->kind != CALL_WAIT && !r->answered;
		*is_leaving &= r->kind != CALL_CREATE;
	}
	return stays;
}

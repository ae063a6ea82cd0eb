/* containerd and exitd say anything in any order, connections come and go: what is given to containerd is whole replies,
 * what exitd gets begins with a hello and is whole frames, what the courier brings is whole requests, one at a
 * time, and nothing grows beyond its bound. */
#include <stdlib.h>
#include <string.h>

#include "../../relay/relay.h"

struct play {
	struct cache cache;
	struct session session;
	struct courier courier;
	struct witness witness;
	struct reader given;
	struct reader heard;
	struct reader brought;
	int64_t now_ms;
	int greeted;
};

/* Takes some of what waits to go out, as a socket does, and reads it as the other side does. */
static void take(struct play *p, struct buffer *out, struct reader *in, size_t most)
{
	size_t size = out->end - out->at < most ? out->end - out->at : most, at = 0;
	int whole;

	while (at < size) {
		at += reader_feed(in, out->data + out->at + at, size - at, &whole);
		if (!whole)
			continue;
		if (in->flags || in->length > FRAME_MAX || (in == &p->given && in->type != FRAME_RESPONSE) ||
		    (in == &p->brought && in->type != FRAME_REQUEST) ||
		    (in == &p->heard && (in->type == FRAME_HELLO) == p->greeted))
			abort();
		p->greeted |= in == &p->heard;
		reader_next(in);
	}
	if (in == &p->given)
		session_given(&p->session, size);
	else if (size)
		buffer_take(out, size);
}

static void say(struct play *p, int to_exitd, int framed, const char *data, size_t size)
{
	char frame[FRAME_HEAD + 256];
	int type = to_exitd ? FRAME_REQUEST : size && data[0] & 8 ? FRAME_EVENT : FRAME_RESPONSE;

	if (framed && size) {
		frame_head(frame, (uint32_t)size - 1, (unsigned char)data[0] % 16, type);
		frame[9] = to_exitd ? 0 : (char)(data[0] & 0xf0);
		memcpy(frame + FRAME_HEAD, data + 1, size - 1);
		data = frame;
		size += FRAME_HEAD - 1;
	}
	if (to_exitd)
		session_ask(&p->session, data, size, p->now_ms);
	else if (p->session.is_up)
		session_answer(&p->session, data, size);
}

static void change(struct play *p, int what, size_t count)
{
	struct session *s = &p->session;

	if (what == 4 && !s->is_up) {
		reader_next(&p->heard);
		p->greeted = 0;
		session_up(s, "hello", 5, p->now_ms);
	} else if (what == 5 && s->is_up) {
		session_down(s);
	} else if (what == 6) {
		p->now_ms += (int64_t)count * 16;
		session_look(s, p->now_ms);
		session_witness(s, p->now_ms);
		session_fill(s, p->now_ms);
	} else if (what == 7 && count == 255 && !s->is_over) {
		session_over(s);
	} else if (what == 7) {
		take(p, &s->to_containerd, &p->given, count);
		take(p, &s->to_exitd, &p->heard, count);
	}
}

/* As watch.c does it: the next step of one of the tasks, if it is one's turn. */
static void step(struct play *p, size_t which)
{
	struct seen seen = { .status = (int)which, .pid = 42, .started = 1, .realtime_ns = 1, .began = which % 5 ? 1 : -1 };
	struct task *t = p->witness.first;

	for (which %= p->witness.count + 1; t && which--; )
		t = t->next;
	if (t && t->stage == TASK_MADE)
		witness_watched(&p->witness, t, 42, 1, -1);
	else if (t && t->stage == TASK_WATCHED)
		witness_dead(&p->witness, t, p->now_ms);
	else if (t && t->stage == TASK_DEAD)
		witness_read(&p->witness, t, &seen);
	else if (t)
		t->is_noted = 1, t->taken |= NEWS_START;
	courier_bring(&p->courier, which & 1, p->now_ms);
	news_sweep(&p->witness);
}

static void forget(struct witness *w)
{
	for (struct task *t = w->first; t; t = t->next) {
		t->stage = TASK_GONE;
		t->taken = NEWS_DELETE;
		t->brought = 0;
	}
	news_sweep(w);
}

/* As post.c does it: a connection that has ended is another one afterwards. */
static void close_post(struct play *p)
{
	reader_next(&p->brought);
	buffer_free(&p->courier.to_containerd);
	courier_down(&p->courier);
}

static void bring(struct play *p, int how, const char *data, size_t size)
{
	struct courier *c = &p->courier;

	if (courier_look(c, p->now_ms))
		close_post(p);
	if (how == 0 && courier_wants(c))
		courier_up(c);
	else if (how == 1)
		close_post(p);
	else if (how == 2 && c->is_up)
		take(p, &c->to_containerd, &p->brought, size);
	else if (how == 3 && c->is_up && courier_hear(c, data, size))
		close_post(p);
	courier_report(c, &p->session);
	if (!c->number && c->to_containerd.end > c->to_containerd.at)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct play p = { .now_ms = 1 };

	session_init(&p.session, &p.cache);
	p.session.courier = &p.courier;
	p.session.witness = &p.witness;
	p.courier.witness = &p.witness;
	p.witness.name_space = "ns";
	while (size >= 2 && !p.session.is_broken) {
		int what = data[0] % 10;
		size_t count = data[1];

		data += 2;
		size -= 2;
		if (what < 4) {
			count = count < size ? count : size;
			if (what < 2 && p.session.is_over)
				what += 2;
			say(&p, what < 2, what % 2, (const char *)data, count);
			data += count;
			size -= count;
		} else if (what == 8 && data[-2] >> 6 == 3) {
			count = count < size ? count : size;
			bring(&p, 3, (const char *)data, count);
			data += count;
			size -= count;
		} else if (what == 8) {
			bring(&p, data[-2] >> 6, "", count);
		} else if (what == 9) {
			step(&p, count);
		} else {
			change(&p, what, count);
		}
		if (p.session.pending.count > PENDING_MAX || p.session.pending.bytes > PENDING_BYTES ||
		    p.cache.count > CACHE_MAX || p.cache.bytes > CACHE_BYTES ||
		    p.witness.count > TASKS_MAX)
			abort();
	}
	close_post(&p);
	session_free(&p.session);
	forget(&p.witness);
	reader_next(&p.given);
	reader_next(&p.heard);
	while (p.cache.first)
		cache_forget(&p.cache, p.cache.first->payload);
	return 0;
}

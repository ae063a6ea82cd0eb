/* The courier: one event of exitd's at a time is brought to containerd, over a connection of its own. It outlives exitd
 * and so knows what an exitd that was killed does not: whether containerd has the event. Bytes come in, bytes wait in a
 * buffer to go out. */
#include <stdlib.h>
#include <string.h>

#include "relay.h"

#define OURS UINT64_MAX

static void over(struct courier *c, uint64_t taken, const char *answer, size_t size)
{
	if (taken == c->number && c->witness)
		news_taken(c->witness, &c->news);
	if (taken == c->number)
		c->bring_ms = 0;
	if (c->number != OURS) {
		memcpy(c->answer, answer, size);
		c->answer_size = size;
		c->taken = taken;
		c->over = c->number;
	}
	c->number = 0;
	c->due_ms = 0;
	buffer_free(&c->to_containerd);
}

static void fail(struct courier *c, int code, const char *why)
{
	char data[128];
	int size = response_error(data, sizeof data, code, why);

	over(c, c->taken, data, size > 0 ? (size_t)size : 0);
}

static void tell(struct session *s, uint64_t number, const char *answer, size_t size)
{
	char data[FRAME_HEAD + EVENT_HEAD + ANSWER_MAX];

	frame_head(data, (uint32_t)(EVENT_HEAD + size), 0, FRAME_TOLD);
	for (int i = 0; i < EVENT_HEAD; i++)
		data[FRAME_HEAD + i] = (char)(number >> (56 - 8 * i) & 0xff);
	memcpy(data + FRAME_HEAD + EVENT_HEAD, answer, size);
	if (buffer_put(&s->to_exitd, data, FRAME_HEAD + EVENT_HEAD + size))
		s->is_broken = 1;
}

static void refuse(struct session *s, uint64_t number, const char *why)
{
	char data[128];
	int size = response_error(data, sizeof data, CODE_RESOURCE_EXHAUSTED, why);

	tell(s, number, data, size > 0 ? (size_t)size : 0);
}

/* 0, or -1: there is no memory for it. */
static int take(struct courier *c, uint64_t number, const char *data, size_t size)
{
	char head[FRAME_HEAD];

	c->stream += 2;
	frame_head(head, (uint32_t)size, c->stream - 1, FRAME_REQUEST);
	if (buffer_put(&c->to_containerd, head, sizeof head) || buffer_put(&c->to_containerd, data, size)) {
		buffer_free(&c->to_containerd);
		return -1;
	}
	c->number = number;
	return 0;
}

static bool is_old(struct courier *c, const struct reader *in)
{
	struct text request = { in->data + EVENT_HEAD, in->length - EVENT_HEAD };

	c->news = (struct news){ 0 };
	return c->witness && news_is_old(c->witness, request, &c->news);
}

/* An event that exitd hands over. It waits for the answer to one before it hands over the next: what comes again, from
 * an exitd that has not noted the answer, is the last one or the one on its way, and is not sent once more. */
void courier_offer(struct courier *c, struct session *s, const struct reader *in)
{
	uint64_t number = 0;

	if (!in->data || in->length < EVENT_HEAD)
		return;
	for (int i = 0; i < EVENT_HEAD; i++)
		number = number << 8 | (unsigned char)in->data[i];
	if (!number)
		return;
	if (c->number && c->number != number)
		return refuse(s, number, "another event is on its way");
	if (!c->number && c->taken != number && is_old(c, in))
		c->taken = number;
	else if (!c->number && c->taken != number &&
		 take(c, number, in->data + EVENT_HEAD, in->length - EVENT_HEAD))
		return refuse(s, number, "no memory");
	s->event = number;
}

/* Begins to bring what exitd does not: it is away, or silent about an end. */
void courier_bring(struct courier *c, int is_away, int64_t now_ms)
{
	struct news news;
	size_t size;
	char *request = NULL;

	if (c->number || !c->witness || now_ms < c->bring_ms)
		return;
	request = news_next(c->witness, is_away, &news, &size);
	c->bring_ms = request ? now_ms + BRING_MS : 0;
	if (request && !take(c, OURS, request, size))
		c->news = news;
	free(request);
}

/* Tells exitd what has become of the event that was handed over here, once that is known. */
void courier_report(const struct courier *c, struct session *s)
{
	if (!s->event || s->event == c->number || !s->is_up)
		return;
	if (s->event == c->taken)
		tell(s, s->event, "", 0);
	else if (s->event == c->over)
		tell(s, s->event, c->answer, c->answer_size);
	else
		refuse(s, s->event, "another event has come between");
	s->event = 0;
}

/* Whether a connection to containerd is wanted and not there. */
bool courier_wants(const struct courier *c)
{
	return c->number && !c->is_up;
}

/* It is there. */
void courier_up(struct courier *c)
{
	c->is_up = 1;
	c->due_ms = 0;
}

/* It has ended, or cannot be had. Whether containerd took what was written is not known then: exitd tries again. */
void courier_down(struct courier *c)
{
	c->is_up = 0;
	reader_next(&c->from_containerd);
	if (c->number)
		fail(c, CODE_UNAVAILABLE, "containerd is away");
}

static void response(struct courier *c, const struct reader *in)
{
	struct text payload;
	int code = in->length && !in->data ? -1 : response_code(in->data ? in->data : "", in->length, &payload);

	if (!code)
		over(c, c->number, "", 0);
	else if (code > 0 && in->length <= ANSWER_MAX)
		over(c, c->taken, in->data, in->length);
	else
		fail(c, code > 0 ? code : CODE_UNAVAILABLE, "containerd's answer cannot be read");
}

/* Bytes of containerd. Whether the connection is to be closed. An answer to a request of which a part has not left yet
 * is no answer to it, and the next request must not follow that half one. */
bool courier_hear(struct courier *c, const char *data, size_t size)
{
	struct reader *in = &c->from_containerd;
	int whole;

	for (size_t at = 0; at < size;) {
		at += reader_feed(in, data + at, size - at, &whole);
		if (!whole)
			continue;
		if (in->type == FRAME_RESPONSE && c->number && in->stream == c->stream - 1) {
			if (c->to_containerd.end > c->to_containerd.at) {
				fail(c, CODE_UNAVAILABLE, "containerd has answered half a request");
				return true;
			}
			response(c, in);
		}
		reader_next(in);
	}
	return false;
}

/* No peer is waited for without an end. Whether the connection is to be closed, since an answer may still come over
 * it. */
bool courier_look(struct courier *c, int64_t now_ms)
{
	if (!c->number)
		return false;
	if (!c->due_ms)
		c->due_ms = now_ms + (c->is_up ? ANSWER_MS : CONNECT_MS);
	if (now_ms < c->due_ms)
		return false;
	fail(c, CODE_UNAVAILABLE, c->is_up ? "containerd does not answer" : "containerd takes no connection");
	return c->is_up;
}

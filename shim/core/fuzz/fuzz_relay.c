/* containerd and exitd say anything in any order, connections come and go: what is given to containerd is whole replies,
 * what is told to exitd begins with a hello and is whole frames, and nothing grows beyond its bound. */
#include <stdlib.h>
#include <string.h>

#include "../../relay/relay.h"

struct play {
	struct cache cache;
	struct session session;
	struct reader given;
	struct reader told;
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
		    (in == &p->told && (in->type == FRAME_HELLO) == p->greeted))
			abort();
		p->greeted |= in == &p->told;
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
	int type = to_exitd ? FRAME_REQUEST : FRAME_RESPONSE;

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
		reader_next(&p->told);
		p->greeted = 0;
		session_up(s, "hello", 5, p->now_ms);
	} else if (what == 5 && s->is_up) {
		session_down(s);
	} else if (what == 6) {
		p->now_ms += (int64_t)count * 16;
		session_look(s, p->now_ms);
		session_fill(s, p->now_ms);
	} else if (what == 7 && count == 255 && !s->is_over) {
		session_over(s);
	} else if (what == 7) {
		take(p, &s->to_containerd, &p->given, count);
		take(p, &s->to_exitd, &p->told, count);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct play p = { .now_ms = 1 };

	session_init(&p.session, &p.cache);
	while (size >= 2 && !p.session.is_broken) {
		int what = data[0] % 8;
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
		} else {
			change(&p, what, count);
		}
		if (p.session.pending.count > PENDING_MAX || p.session.pending.bytes > PENDING_BYTES ||
		    p.cache.count > CACHE_MAX || p.cache.bytes > CACHE_BYTES)
			abort();
	}
	session_free(&p.session);
	reader_next(&p.given);
	reader_next(&p.told);
	while (p.cache.first)
		cache_forget(&p.cache, p.cache.first->payload);
	return 0;
}

/* ttrpc's frames: ten bytes of head, then data. */
#include <stdlib.h>
#include <string.h>

#include "relay.h"

#define ROOM_MIN 4096

static uint32_t number(const unsigned char *in)
{
	return (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 | in[3];
}

void frame_head(char *out, uint32_t length, uint32_t stream, int type)
{
	for (int i = 0; i < 4; i++) {
		out[i] = (char)(length >> (24 - 8 * i) & 0xff);
		out[4 + i] = (char)(stream >> (24 - 8 * i) & 0xff);
	}
	out[8] = (char)type;
	out[9] = 0;
}

/* Memory comes as the bytes do: a head may announce 4 MiB and nothing follow. Without room the frame is skipped. */
static void make_room(struct reader *r)
{
	uint32_t room = r->room ? r->room * 2 : ROOM_MIN;
	char *bigger;

	if (r->length > FRAME_MAX || r->got < r->room || (r->got && !r->data))
		return;
	room = room < r->length ? room : r->length;
	bigger = realloc(r->data, room);
	if (!bigger) {
		free(r->data);
		room = 0;
	}
	r->data = bigger;
	r->room = room;
}

static size_t take_head(struct reader *r, const char *in, size_t size)
{
	size_t count = FRAME_HEAD - r->head_used < size ? FRAME_HEAD - r->head_used : size;

	memcpy(r->head + r->head_used, in, count);
	r->head_used += (uint32_t)count;
	if (r->head_used == FRAME_HEAD) {
		r->length = number(r->head);
		r->stream = number(r->head + 4);
		r->type = r->head[8];
		r->flags = r->head[9];
	}
	return count;
}

/* Takes from `in` up to the end of one frame; how much that was. With `whole` set the frame is in the reader until
 * reader_next. */
size_t reader_feed(struct reader *r, const char *in, size_t size, int *whole)
{
	size_t eaten = r->head_used < FRAME_HEAD ? take_head(r, in, size) : 0;

	*whole = 0;
	while (r->head_used == FRAME_HEAD && r->got < r->length && eaten < size) {
		size_t count;

		make_room(r);
		count = (r->data ? r->room : r->length) - r->got;
		count = count < size - eaten ? count : size - eaten;
		if (r->data)
			memcpy(r->data + r->got, in + eaten, count);
		r->got += (uint32_t)count;
		eaten += count;
	}
	*whole = r->head_used == FRAME_HEAD && r->got == r->length;
	return eaten;
}

/* Ready for the next frame. A caller that keeps the data has taken the pointer. */
void reader_next(struct reader *r)
{
	free(r->data);
	*r = (struct reader){ 0 };
}

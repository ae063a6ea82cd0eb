/* A queue of bytes that grows as it is filled and keeps nothing when it is empty. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "relay.h"

#define ROOM_MIN 512

/* 0 or -ENOMEM. */
int buffer_put(struct buffer *b, const char *data, size_t size)
{
	size_t used = b->end - b->at;

	if (size > b->room - b->end && b->at >= used && used + size <= b->room) {
		memcpy(b->data, b->data + b->at, used);
		b->at = 0;
		b->end = used;
	}
	if (size > b->room - b->end) {
		size_t room = b->room ? b->room : ROOM_MIN;
		char *bigger;

		while (room < b->end + size)
			room *= 2;
		bigger = realloc(b->data, room);
		if (!bigger)
			return -ENOMEM;
		b->data = bigger;
		b->room = room;
	}
	if (size)
		memcpy(b->data + b->end, data, size);
	b->end += size;
	return 0;
}

void buffer_take(struct buffer *b, size_t size)
{
	b->at += size;
	if (b->at == b->end)
		buffer_free(b);
}

void buffer_free(struct buffer *b)
{
	free(b->data);
	*b = (struct buffer){ 0 };
}

/* Any output as pieces for the journal, in any room: every byte is in a piece, and a datagram is whole and within its
 * room, or there is none. */
#include <stdlib.h>
#include <string.h>

#include "../core.h"
#include "../../journald/entry.h"

/* How many fields the datagram has; none may be cut short. */
static int fields_of(const char *data, size_t size)
{
	int count = 0;

	for (; size; count++) {
		const char *end = memchr(data, '\n', size);
		const char *equals = end ? memchr(data, '=', (size_t)(end - data)) : NULL;
		uint64_t length = 0;
		size_t used = end ? (size_t)(end - data) + 1 : 0;

		if (!end || (!equals && size < used + 8))
			abort();
		for (size_t i = 8; !equals && i; i--)
			length = length << 8 | (unsigned char)data[used + i - 1];
		if (!equals && (length >= size - used - 8 || data[used + 8 + length] != '\n'))
			abort();
		used += equals ? 0 : 8 + (size_t)length + 1;
		data += used;
		size -= used;
	}
	return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct labels labels = { "a tag", "0123456789abcdef", "of\ntwo lines" };
	size_t room, at = 0, eaten;
	struct piece piece = { .priority = 6 };
	char *out;

	if (size < 2)
		return 0;
	room = data[0] + (size_t)data[1] % 4 * 256;
	data += 2;
	size -= 2;
	out = malloc(room + 1);
	while ((eaten = (size_t)entry_cut((const char *)data + at, size - at, 1, &piece))) {
		size_t used = entry_format(out, room, &labels, &piece);

		if (eaten != piece.size + !piece.partial || used > room ||
		    (used && fields_of(out, used) != 6 + piece.partial) || (!used && room > piece.size + 256))
			abort();
		at += eaten;
	}
	free(out);
	if (at != size)
		abort();
	return 0;
}

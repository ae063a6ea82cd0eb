/* systemd's native journal protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): fields in a datagram, "KEY=value\n", or for
 * values with a newline "KEY\n", 64 bits of length in little endian, the value, "\n". */
#include <stdint.h>
#include <string.h>

#include "entry.h"

#define SHORT_ID 12

/* The first piece of `in`: a line, or without a newline all of it if there is `no_more` to come. How much of `in` that
 * was, newline included; 0: wait for more. The priority is the caller's. */
int entry_cut(const char *in, size_t size, int no_more, struct piece *out)
{
	const char *end = memchr(in, '\n', size);

	if (!end && (!no_more || !size))
		return 0;
	out->text = in;
	out->size = end ? (size_t)(end - in) : size;
	out->partial = !end;
	return (int)(out->size + (end != NULL));
}

/* One field at `out`. Its size, or 0 when it does not fit into `room`. */
size_t entry_field(char *out, size_t room, const char *key, const char *value, size_t size)
{
	size_t used = strlen(key);
	uint64_t length = size;
	int framed = memchr(value, '\n', size) != NULL;

	if (room < used + size + 2 + (framed ? sizeof length : 0))
		return 0;
	memcpy(out, key, used);
	out[used++] = framed ? '\n' : '=';
	for (size_t i = 0; framed && i < sizeof length; i++)
		out[used++] = (char)(length >> 8 * i & 0xff);
	memcpy(out + used, value, size);
	used += size;
	out[used++] = '\n';
	return used;
}

/* The whole datagram. Its size, or 0 when it does not fit. */
size_t entry_format(char *out, size_t room, const struct labels *labels, const struct piece *piece)
{
	char priority = (char)('0' + piece->priority % 8);
	size_t id = strlen(labels->id), used = 0;
	const struct { const char *key, *value; size_t size; int wanted; } fields[] = {
		{ "MESSAGE", piece->text, piece->size, 1 },
		{ "PRIORITY", &priority, 1, 1 },
		{ "SYSLOG_IDENTIFIER", labels->identifier, strlen(labels->identifier), 1 },
		{ "CONTAINER_ID_FULL", labels->id, id, id > 0 },
		{ "CONTAINER_ID", labels->id, id < SHORT_ID ? id : SHORT_ID, id > 0 },
		{ "CONTAINER_NAME", labels->name, strlen(labels->name), *labels->name != 0 },
		{ "CONTAINER_PARTIAL_MESSAGE", "true", 4, piece->partial },
	};

	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		size_t put = 0;

		if (!fields[i].wanted)
			continue;
		put = entry_field(out + used, room - used, fields[i].key, fields[i].value, fields[i].size);
		if (!put)
			return 0;
		used += put;
	}
	return used;
}

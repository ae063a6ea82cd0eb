/* Any output in any room: progress is made or the room is too small, and the framed texts joined are the output. */
#include <stdlib.h>
#include <string.h>

#include "../core.h"

#define STAMP "2026-01-02T03:04:05.000000006Z"

/* Takes the lines apart again and compares; how many bytes of the output they held. */
static size_t compare(const char *log, size_t size, const char *output)
{
	size_t head = strlen(STAMP) + strlen(" stderr F "), at = 0;

	while (size) {
		const char *end = memchr(log, '\n', size);
		size_t line = end ? (size_t)(end - log) : 0;

		if (!end || line < head || memcmp(log, STAMP " stderr ", head - 2))
			abort();
		if (memcmp(output + at, log + head, line - head) || !strchr("FP", log[head - 2]))
			abort();
		at += line - head;
		if (log[head - 2] == 'F' && output[at++] != '\n')
			abort();
		log = end + 1;
		size -= line + 1;
	}
	return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t room, eaten, at = 0;
	int64_t when;
	char stamp[STAMP_SIZE], *out;

	if (size < 10)
		return 0;
	memcpy(&when, data, sizeof when);
	if (crilog_stamp(stamp, when) != strlen(STAMP))
		abort();
	room = data[8] + (size_t)data[9] % 4 * 256;
	data += 10;
	size -= 10;
	out = malloc(room + 1);
	while (at < size) {
		size_t used = crilog_frame(out, room, (const char *)data + at, size - at, &eaten, STAMP, "stderr");

		if (used > room || compare(out, used, (const char *)data + at) != eaten)
			abort();
		if (!eaten)
			break;
		at += eaten;
	}
	if (at < size && room > strlen(STAMP) + strlen("stderr") + 5)
		abort();
	free(out);
	return 0;
}

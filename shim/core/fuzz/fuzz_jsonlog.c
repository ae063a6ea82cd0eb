/* Any output in any room: progress is made, or the room is too small, or no more than the begin of a character is left.
 * What is written is whole lines of printable text. */
#include <stdlib.h>
#include <string.h>

#include "../core.h"

#define STAMP "2026-01-02T03:04:05.000000006Z"
#define HEAD "{\"log\":\""
#define TAIL "\",\"stream\":\"stderr\",\"time\":\"" STAMP "\"}"

static void check(const char *log, size_t size)
{
	while (size) {
		const char *end = memchr(log, '\n', size);
		size_t line = end ? (size_t)(end - log) : 0;

		if (line <= strlen(HEAD) + strlen(TAIL) || memcmp(log, HEAD, strlen(HEAD)) ||
		    memcmp(end - strlen(TAIL), TAIL, strlen(TAIL)))
			abort();
		for (size_t i = 0; i < line; i++)
			if ((unsigned char)log[i] < 0x20)
				abort();
		log = end + 1;
		size -= line + 1;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t room, eaten, at = 0;
	char *out;

	if (size < 2)
		return 0;
	room = data[0] + (size_t)data[1] % 4 * 256;
	data += 2;
	size -= 2;
	out = malloc(room + 1);
	while (at < size) {
		size_t used = jsonlog_frame(out, room, (const char *)data + at, size - at, &eaten, STAMP, "stderr");

		if (used > room || eaten > size - at || !used != !eaten)
			abort();
		check(out, used);
		if (!eaten)
			break;
		at += eaten;
	}
	if (size - at > 3 && room >= strlen(HEAD) + 6 + strlen(TAIL) + 1)
		abort();
	free(out);
	return 0;
}

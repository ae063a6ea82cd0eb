/* What `start` takes from its stdin where command line and environment do not say it: containerd since 2.3 writes a
 * BootstrapParams there, and means to leave the rest out one day. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../core/kernel.h"
#include "daemon.h"

enum { PARAMS_MAX = 65536, PARAMS_MS = 2000, INSTANCE = 1, NAMESPACE = 2, EVENTS = 5, ADDRESS = 6, FIELDS = 7 };

/* All of it, to its end; -errno where that does not come in time, or is more. */
static int read_all(char *out)
{
	int64_t end_ms = now_ns(CLOCK_MONOTONIC) / 1000000 + PARAMS_MS, left_ms = PARAMS_MS;
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
	int size = 0;
	ssize_t got;

	while (left_ms > 0 && poll(&p, 1, (int)left_ms) > 0) {
		got = read(STDIN_FILENO, out + size, (size_t)(PARAMS_MAX - size));
		if (got < 0 && errno != EINTR)
			return -errno;
		if (got == 0)
			return size < PARAMS_MAX ? size : -E2BIG;
		size += got > 0 ? (int)got : 0;
		left_ms = end_ms - now_ns(CLOCK_MONOTONIC) / 1000000;
	}
	return -ETIMEDOUT;
}

static bool differs(const char *word, struct text text)
{
	return *word && (strlen(word) != text.size || memcmp(word, text.at, text.size));
}

static void fill(const char **word, char *room, struct text text)
{
	if (**word || !text.size || text.size >= BOOTSTRAP_ROOM || memchr(text.at, 0, text.size))
		return;
	memcpy(room, text.at, text.size);
	room[text.size] = 0;
	*word = room;
}

/* Fills in what is missing. What is not for this task is no BootstrapParams: older versions write other messages there. */
void bootstrap_read(struct words *w)
{
	static char data[PARAMS_MAX], room[FIELDS][BOOTSTRAP_ROOM];
	struct text of[FIELDS] = { 0 };
	const char *at = data, *end;
	struct field field;
	int more, size;

	if (*w->name_space && *w->id && *w->address && *w->events)
		return;
	size = read_all(data);
	end = data + (size > 0 ? size : 0);
	while ((more = proto_next(&at, end, &field)) > 0)
		if (field.is_text && field.number < FIELDS)
			of[field.number] = field.text;
	if (more < 0 || !of[INSTANCE].size || differs(w->id, of[INSTANCE]) || differs(w->name_space, of[NAMESPACE]))
		return;
	fill(&w->id, room[INSTANCE], of[INSTANCE]);
	fill(&w->name_space, room[NAMESPACE], of[NAMESPACE]);
	fill(&w->events, room[EVENTS], of[EVENTS]);
	fill(&w->address, room[ADDRESS], of[ADDRESS]);
}

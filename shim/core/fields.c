/* The one grammar of everything that two processes share: NUL-separated fields behind a kind and a version. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core.h"

/* The version (> 0) of a complete message of this kind, or -EBADMSG: cut short, another kind, a field without '='. */
int fields_check(const char *data, size_t size, const char *kind)
{
	size_t length = strlen(kind), at;
	int version = 0;

	if (size < length + 7 || memcmp(data, kind, length) || data[length] != ' ' || memcmp(data + size - 5, "\0end", 5))
		return -EBADMSG;
	for (at = length + 1; data[at]; at++) {
		if (data[at] < '0' + !version || data[at] > '9' || version > 9999)
			return -EBADMSG;
		version = version * 10 + (data[at] - '0');
	}
	for (at++; at < size - 4; at += strlen(data + at) + 1)
		if (!strchr(data + at, '=') || data[at] == '=')
			return -EBADMSG;
	return version > 0 ? version : -EBADMSG;
}

/* The values of `key` in their order, at most `max`; the count, or -E2BIG. Only after fields_check. */
int fields_list(const char *data, size_t size, const char *key, const char **out, int max)
{
	size_t length = strlen(key), at;
	int count = 0;

	for (at = 0; at < size; at += strlen(data + at) + 1) {
		if (strncmp(data + at, key, length) || data[at + length] != '=')
			continue;
		if (count == max)
			return -E2BIG;
		out[count++] = data + at + length + 1;
	}
	return count;
}

/* The first value of `key`, or NULL. Only after fields_check. */
const char *fields_get(const char *data, size_t size, const char *key)
{
	const char *found[1] = { NULL };

	fields_list(data, size, key, found, 1);
	return found[0];
}

/* A decimal value into `out`: 0, -ENOENT, or -EINVAL for anything but digits that fit. */
int fields_number(const char *data, size_t size, const char *key, uint64_t *out)
{
	const char *text = fields_get(data, size, key);
	uint64_t value = 0;

	if (!text)
		return -ENOENT;
	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		uint64_t digit = (uint64_t)*text - '0';

		if (*text < '0' || digit > 9 || value > (UINT64_MAX - digit) / 10)
			return -EINVAL;
		value = value * 10 + digit;
	}
	*out = value;
	return 0;
}

static void put(struct writer *w, const char *text, size_t length)
{
	if (w->overflow || length > w->size - w->used) {
		w->overflow = 1;
		return;
	}
	memcpy(w->data + w->used, text, length);
	w->used += length;
}

static void put_decimal(struct writer *w, uint64_t value)
{
	char digits[24];

	put(w, digits, (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)value));
	put(w, "", 1);
}

void writer_open(struct writer *w, char *data, size_t size, const char *kind, int version)
{
	*w = (struct writer){ .data = data, .size = size };
	put(w, kind, strlen(kind));
	put(w, " ", 1);
	put_decimal(w, (uint64_t)version);
}

void writer_text(struct writer *w, const char *key, const char *value)
{
	put(w, key, strlen(key));
	put(w, "=", 1);
	put(w, value, strlen(value) + 1);
}

void writer_number(struct writer *w, const char *key, uint64_t value)
{
	put(w, key, strlen(key));
	put(w, "=", 1);
	put_decimal(w, value);
}

/* The message's size, or -E2BIG when the buffer was too small for it. */
int writer_close(struct writer *w)
{
	put(w, "end", 4);
	return w->overflow ? -E2BIG : (int)w->used;
}

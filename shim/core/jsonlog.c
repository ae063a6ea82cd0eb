/* Container output as json-file lines: {"log":"<text>","stream":"<stream>","time":"<time>"}. A text without \n at its
 * end goes on in the next line. JSON holds characters, not bytes: what is no UTF-8 becomes U+FFFD, byte by byte. */
#include <stdio.h>
#include <string.h>

#include "core.h"

enum { UNIT_MAX = 6 };	/* \u001b, \ufffd */

/* The length of the character at `in`; 0: its rest is not there yet, -1: no character begins with this byte. */
static int utf8(const unsigned char *in, size_t size)
{
	unsigned char first = in[0], low = 0x80, high = 0xbf;
	int length;

	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return -1;
	length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
	/* Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte. */
	if (first == 0xe0)
		low = 0xa0;
	if (first == 0xed)
		high = 0x9f;
	if (first == 0xf0)
		low = 0x90;
	if (first == 0xf4)
		high = 0x8f;
	for (int i = 1; i < length; i++, low = 0x80, high = 0xbf) {
		if ((size_t)i == size)
			return 0;
		if (in[i] < low || in[i] > high)
			return -1;
	}
	return length;
}

/* One character as it stands in a JSON string, at most UNIT_MAX bytes; `eaten` may become 0: its rest is missing. */
static size_t unit(char *out, const char *in, size_t size, size_t *eaten)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char byte = (unsigned char)*in;
	const char *plain = "\"\\\n\r\t", *mark = byte ? strchr(plain, byte) : NULL;
	int length = utf8((const unsigned char *)in, size);

	*eaten = length < 0 ? 1 : (size_t)length;
	if (mark) {
		out[0] = '\\';
		out[1] = "\"\\nrt"[mark - plain];
		return 2;
	}
	if (length < 0 || byte < 0x20) {
		memcpy(out, length < 0 ? "\\ufffd" : "\\u00", length < 0 ? 6 : 4);
		if (length > 0)
			out[4] = hex[byte >> 4], out[5] = hex[byte & 15];
		return 6;
	}
	memcpy(out, in, *eaten);
	return *eaten;
}

/* How many bytes stand for themselves. */
static size_t plain(const char *in, size_t size)
{
	size_t count = 0;

	while (count < size && in[count] >= 0x20 && (unsigned char)in[count] < 0x80 && in[count] != '"' &&
	       in[count] != '\\')
		count++;
	return count;
}

/* As much of the line at `in` as fits, escaped. */
static size_t escape(char *out, size_t out_size, const char *in, size_t in_size, size_t *eaten)
{
	size_t used = 0, at = 0, step;
	int ended = 0;

	while (!ended && at < in_size && out_size - used >= UNIT_MAX) {
		size_t room = out_size - used, left = in_size - at;

		step = plain(in + at, left < room ? left : room);
		memcpy(out + used, in + at, step);
		used += step;
		at += step;
		if (at == in_size || out_size - used < UNIT_MAX)
			break;
		ended = in[at] == '\n';
		used += unit(out + used, in + at, in_size - at, &step);
		at += step;
		ended |= !step;
	}
	*eaten = at;
	return used;
}

/* Frames as much of `in` as fits into `out`; `eaten` says how much that was. A line that does not fit at all is cut
 * between two characters. Not eaten: the begin of a character (1 to 3 bytes) at the very end. Returns the bytes written;
 * 0 with 0 eaten means that no character is whole, or that `out_size` is too small for any line. */
size_t jsonlog_frame(char *out, size_t out_size, const char *in, size_t in_size, size_t *eaten, const char *stamp,
		     const char *stream)
{
	char tail[128];
	size_t used = 0, at = 0, got, text;
	size_t end = (size_t)snprintf(tail, sizeof tail, "\",\"stream\":\"%s\",\"time\":\"%s\"}\n", stream, stamp);
	const char *head = "{\"log\":\"";

	while (at < in_size && out_size - used >= strlen(head) + UNIT_MAX + end) {
		size_t room = out_size - used - strlen(head) - end;

		text = escape(out + used + strlen(head), room, in + at, in_size - at, &got);
		/* Cut for want of room, though the next call has more of it. */
		if (!got || (used && room - text < UNIT_MAX && at + got < in_size && in[at + got - 1] != '\n'))
			break;
		memcpy(out + used, head, strlen(head));
		used += strlen(head) + text;
		memcpy(out + used, tail, end);
		used += end;
		at += got;
	}
	*eaten = at;
	return used;
}

/* Container output as CRI log lines: "<time> <stream> <F|P> <text>". F stands for a line with its newline, P for bytes
 * without one, so that joining the texts gives the container's output back, byte for byte. */
#include <string.h>

#include "core.h"

/* `width` digits of a number, and the sign that follows them. */
static char *digits(char *out, int64_t number, int width, char sign)
{
	for (int i = width; i-- > 0; number /= 10)
		out[i] = (char)('0' + number % 10);
	out[width] = sign;
	return out + width + 1;
}

/* RFC 3339 in UTC with nine digits, NUL-terminated, into STAMP_SIZE bytes; its length. Civil dates are computed here
 * (days since 0000-03-01 in 400-year eras): libc's gmtime would pull in its time zone code, and printf takes as long as
 * the rest of a short line. */
size_t crilog_stamp(char *out, int64_t realtime_ns)
{
	int64_t seconds = realtime_ns / 1000000000, nanos = realtime_ns % 1000000000;
	int64_t days, rest, era, doe, yoe, doy, mp, month, year;
	char *at = out;

	if (realtime_ns < 0)
		seconds = nanos = 0;
	days = seconds / 86400 + 719468;
	rest = seconds % 86400;
	era = days / 146097;
	doe = days - era * 146097;
	yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	mp = (5 * doy + 2) / 153;
	month = mp < 10 ? mp + 3 : mp - 9;
	year = yoe + era * 400 + (month <= 2);
	at = digits(at, year % 10000, 4, '-');
	at = digits(at, month, 2, '-');
	at = digits(at, doy - (153 * mp + 2) / 5 + 1, 2, 'T');
	at = digits(at, rest / 3600, 2, ':');
	at = digits(at, rest / 60 % 60, 2, ':');
	at = digits(at, rest % 60, 2, '.');
	at = digits(at, nanos, 9, 'Z');
	*at = 0;
	return (size_t)(at - out);
}

/* Sixteen bytes at once: a libc's memchr and memcpy for each line cost more than the line. */
typedef unsigned char block __attribute__((vector_size(16), aligned(1), may_alias));
typedef long long halves __attribute__((vector_size(16)));

static bool has_newline(block bytes)
{
	halves found = (halves)(bytes == '\n');

	return (found[0] | found[1]) != 0;
}

/* Bytes up to a newline, `max` at most; how many. What lies behind them in `to` is written over. */
static size_t copy_line(char *to, const char *from, size_t max)
{
	size_t at = 0;

	for (; max - at >= sizeof(block); at += sizeof(block)) {
		block bytes = *(const block *)(from + at);

		*(block *)(to + at) = bytes;
		if (has_newline(bytes))
			break;
	}
	for (; at < max && from[at] != '\n'; at++)
		to[at] = from[at];
	return at;
}

static void copy(char *to, const char *from, size_t length)
{
	size_t at = 0;

	for (; length - at >= sizeof(block); at += sizeof(block))
		*(block *)(to + at) = *(const block *)(from + at);
	if (length >= sizeof(block))
		*(block *)(to + length - sizeof(block)) = *(const block *)(from + length - sizeof(block));
	else
		for (; at < length; at++)
			to[at] = from[at];
}

/* "<stamp> <stream> F "; its length. */
static size_t put_head(char *out, const char *stamp, const char *stream)
{
	size_t stamped = strlen(stamp), named = strlen(stream);

	copy(out, stamp, stamped);
	out[stamped] = ' ';
	copy(out + stamped + 1, stream, named);
	copy(out + stamped + 1 + named, " F ", 3);
	return stamped + named + 4;
}

/* Frames as much of `in` as fits into `out`; `eaten` says how much that was. A line that does not fit at all is cut
 * into P pieces. Returns the bytes written; 0 with 0 eaten means that `out_size` is too small for any line. */
size_t crilog_frame(char *out, size_t out_size, const char *in, size_t in_size, size_t *eaten, const char *stamp,
		    const char *stream)
{
	size_t head = strlen(stamp) + strlen(stream) + 4, used = 0, at = 0;

	while (at < in_size && out_size - used > head + 1) {
		size_t left = in_size - at, room = out_size - used - head - 1, length;
		char *line = out + used;
		int ends;

		if (used)
			copy(line, out, head);
		else
			put_head(line, stamp, stream);
		length = copy_line(line + head, in + at, left < room ? left : room);
		ends = length < left && in[at + length] == '\n';
		if (!ends && length < left && used)
			break;
		line[head - 2] = ends ? 'F' : 'P';
		line[head + length] = '\n';
		used += head + length + 1;
		at += length + (size_t)ends;
	}
	*eaten = at;
	return used;
}

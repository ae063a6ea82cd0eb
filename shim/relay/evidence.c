/* What an exit record says (core/record.c wrote it), as far as it is reported to containerd. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay.h"

#define HEAD "{\"version\":1,\"length\":\"%04u\",\"crc\":\"%08x\","
#define CHECKED 46	/* its length; the crc covers what stands behind it */
#define LENGTH_AT 23

/* The number behind "key": in the record's body, or -1. No id can look like a key: it has no quote. */
static int64_t number(const char *body, const char *key)
{
	char wanted[32];
	const char *at;

	snprintf(wanted, sizeof wanted, "\"%s\":", key);
	at = strstr(body, wanted);
	return at ? strtoll(at + strlen(wanted), NULL, 10) : -1;
}

/* 0; -EAGAIN for a record that nobody has written yet; -EBADMSG for everything else. */
int evidence_read(struct seen *out, const char *data, size_t size)
{
	char body[RECORD_SIZE], head[64];
	int64_t code, signal;
	size_t length;

	if (!size || !data[0])
		return -EAGAIN;
	if (size <= CHECKED || size > sizeof body)
		return -EBADMSG;
	memcpy(body, data, CHECKED);
	body[CHECKED] = 0;
	length = strtoul(body + LENGTH_AT, NULL, 10);
	if (length <= CHECKED || length > size)
		return -EBADMSG;
	snprintf(head, sizeof head, HEAD, (unsigned)length, (unsigned)record_crc(data + CHECKED, length - CHECKED));
	if (memcmp(data, head, CHECKED))
		return -EBADMSG;
	memcpy(body, data + CHECKED, length - CHECKED);
	body[length - CHECKED] = 0;
	code = number(body, "code");
	signal = number(body, "signal");
	if ((code < 0) == (signal < 0) || code > 255 || signal > 127)
		return -EBADMSG;
	out->status = (int)(signal < 0 ? code : 128 + signal);
	out->began = strstr(body, "\"began\":true") ? 1 : strstr(body, "\"began\":false") ? 0 : -1;
	if (!out->began) /* the number is that of the runtime's init */
		out->status = UNKNOWN_STATUS;
	out->oom_kills = number(body, "oom_kills");
	out->pid = (int)number(body, "pid");
	out->started = (uint64_t)number(body, "started");
	out->realtime_ns = number(body, "realtime_ns");
	return 0;
}

/* What an exit record says (core/record.c wrote it), as far as it is reported to containerd. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay.h"

#define HEAD "{\"version\":1,\"length\":\"%04u\",\"crc\":\"%08x\","
#define CHECKED 46	/* its length; the crc covers what stands behind it */
#define LENGTH_AT 23

/* The number behind "key": in the record's body, or -1, also for one that has no room here. No id can look like a key: it
 * has no quote. */
static int64_t number(const char *body, const char *key)
{
	char wanted[32];
	const char *at;
	int64_t found;

	snprintf(wanted, sizeof wanted, "\"%s\":", key);
	at = strstr(body, wanted);
	if (!at)
		return -1;
	errno = 0;
	found = strtoll(at + strlen(wanted), NULL, 10);
	return errno ? -1 : found;
}

/* 0; -EAGAIN for a record that is not written yet; -EBADMSG for everything else. */
int evidence_read(struct seen *out, const char *data, size_t size)
{
	char body[RECORD_SIZE], head[64];
	int64_t code, signal, pid, started, realtime_ns;
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
	pid = number(body, "pid");
	started = number(body, "started");
	realtime_ns = number(body, "realtime_ns"); /* before 1970: there is no number for that in a reply of the relay's */
	if ((code < 0) == (signal < 0) || code > 255 || signal > 127 || pid < 0 || pid > INT32_MAX || started < 0 ||
	    realtime_ns <= 0)
		return -EBADMSG;
	out->status = (int)(signal < 0 ? code : 128 + signal);
	out->began = strstr(body, "\"began\":true") ? 1 : strstr(body, "\"began\":false") ? 0 : -1;
	if (!out->began) /* the number is that of the runtime's init */
		out->status = UNKNOWN_STATUS;
	out->oom_kills = number(body, "oom_kills");
	out->pid = (int)pid;
	out->started = (uint64_t)started;
	out->realtime_ns = realtime_ns;
	return 0;
}

/* As evidence_read, of this process and no other; -EAGAIN for everything else, as for what is not written yet. */
int evidence_of(struct seen *out, const char *data, size_t size, int pid, uint64_t started)
{
	struct seen found;

	if (evidence_read(&found, data, size) || found.pid != pid || found.started != started)
		return -EAGAIN;
	*out = found;
	return 0;
}

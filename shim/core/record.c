/* The exit record: one JSON line in a block of fixed size, self-describing, with its own length and checksum. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core.h"

#define HEAD_SIZE 46	/* {"version":1,"length":"0000","crc":"00000000", */

/* CRC-32 (IEEE 802.3), bit by bit: it runs once per exit, a table would cost a page of memory per shim. */
uint32_t record_crc(const char *data, size_t size)
{
	uint32_t crc = 0xffffffffu;

	for (size_t i = 0; i < size; i++) {
		crc ^= (unsigned char)data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1u)));
	}
	return ~crc;
}

/* Ids go into JSON unescaped, so only printable ASCII that needs no escape is taken. To be asked before a container
 * exists: an id refused at its end would cost the exit. */
bool record_takes(const char *id)
{
	for (; *id; id++)
		if (*id < 0x20 || *id > 0x7e || *id == '"' || *id == '\\')
			return false;
	return true;
}

static int body(char *out, size_t size, const struct exit_facts *f)
{
	return snprintf(out, size,
			"\"id\":\"%s\",\"run\":%llu,\"exec\":\"%s\",\"witness\":\"%s\",\"kind\":\"%s\",\"%s\":%d,"
			"\"core\":%s,\"began\":%s,\"pid\":%d,\"started\":%llu,\"realtime_ns\":%lld,\"boottime_ns\":%lld,"
			"\"boot_id\":\"%s\",\"oom_kills\":%lld,\"user_us\":%lld,\"system_us\":%lld,\"max_rss_kb\":%lld}",
			f->id, (unsigned long long)f->run, f->exec, f->witness, f->signaled ? "signaled" : "exited",
			f->signaled ? "signal" : "code", f->value, f->core ? "true" : "false",
			f->began < 0 ? "null" : f->began ? "true" : "false", f->pid, (unsigned long long)f->started,
			(long long)f->realtime_ns, (long long)f->boottime_ns, f->boot_id,
			(long long)f->oom_kills, (long long)f->user_us, (long long)f->system_us,
			(long long)f->max_rss_kb);
}

/* Fills all of `out` (spaces behind the JSON, a newline last), so that one pwrite is the whole record and the file is
 * JSON for everybody. `length` counts the JSON; `crc` covers it from behind the crc field on. The JSON's length, or
 * -EINVAL (an id that would need escapes), -E2BIG. */
int record_format(char *out, size_t size, const struct exit_facts *facts)
{
	char head[HEAD_SIZE + 1];
	int length;

	if (!record_takes(facts->id) || !record_takes(facts->exec) || !record_takes(facts->boot_id))
		return -EINVAL;
	if (size <= HEAD_SIZE + 1 || size > 9999)
		return -E2BIG;
	length = body(out + HEAD_SIZE, size - HEAD_SIZE, facts);
	if (length < 0 || (size_t)length >= size - HEAD_SIZE)
		return -E2BIG;
	snprintf(head, sizeof head, "{\"version\":1,\"length\":\"%04d\",\"crc\":\"%08x\",",
		 (length + HEAD_SIZE) % 10000, (unsigned)record_crc(out + HEAD_SIZE, (size_t)length));
	memcpy(out, head, HEAD_SIZE);
	length += HEAD_SIZE;
	memset(out + length, ' ', size - (size_t)length - 1);
	out[size - 1] = '\n';
	return length;
}

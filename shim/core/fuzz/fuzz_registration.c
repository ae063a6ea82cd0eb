/* Any bytes are a registration or none; one that is, written again, is the same. */
#include <stdlib.h>
#include <string.h>

#include "../core.h"

static int differ(const struct registration *a, const struct registration *b)
{
	return strcmp(a->id, b->id) || strcmp(a->exec, b->exec) || strcmp(a->oom, b->oom) || a->run != b->run ||
	       a->pid != b->pid || a->started != b->started || a->shim_pid != b->shim_pid ||
	       a->shim_started != b->shim_started || a->slot_count != b->slot_count ||
	       memcmp(a->slots, b->slots, sizeof a->slots);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char text[MESSAGE_MAX * 2];
	struct registration read, again;
	int written;

	if (registration_read(&read, (const char *)data, size))
		return 0;
	if (!*read.id || read.slot_count > SLOT_COUNT || read.pid == 1 || read.pid < 0 || read.shim_pid < 0)
		abort();
	if (strlen(read.id) + strlen(read.exec) > MESSAGE_MAX)
		return 0;
	written = registration_write(text, sizeof text, &read);
	if (written < 0 || registration_read(&again, text, (size_t)written) || differ(&read, &again))
		abort();
	return 0;
}

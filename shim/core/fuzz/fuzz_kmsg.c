/* Any records of the kernel's log are read within their bounds, and one completes at most one kill. */
#include <stdlib.h>
#include <string.h>

#include "../core.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char head[] = "6,1852,1063751891,-;";
	struct kmsg log = { .fd = -1, .cgroup = "/a\\x.scope", .pid = 4711, .chosen = -1 };
	char *record = malloc(size + sizeof head);
	int64_t kills;

	if (!record)
		return 0;
	memcpy(record, head, sizeof head - 1);
	memcpy(record + sizeof head - 1, data, size);
	kills = kmsg_take(&log, (const char *)data, size);
	kills += kmsg_take(&log, record, size + sizeof head - 1);
	if (kills != log.kills || log.chosen < -1 || log.chosen > 1)
		abort();
	free(record);
	return 0;
}

/* Any bytes from /proc, a cgroup or a pid file are read within their bounds. */
#include <stdlib.h>

#include "../core.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct proc_stat stat;
	int pid = pid_parse(text, size);

	if (pid == 0 || pid == 1 || oom_parse(text, size) < -1)
		abort();
	proc_stat_parse(&stat, text, size);
	return 0;
}

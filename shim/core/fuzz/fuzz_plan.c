/* Any bytes are a plan within its bounds, or none. */
#include <stdlib.h>
#include <string.h>

#include "../core.h"

static size_t words(const char *const *argv)
{
	size_t count = 0;

	while (argv[count])
		count += strlen(argv[count]) < PLAN_MAX;
	return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct plan plan;

	if (plan_parse(&plan, (const char *)data, size))
		return 0;
	if (!*plan.id || strlen(plan.id) >= ID_MAX || strlen(plan.exec) >= ID_MAX || !record_takes(plan.id))
		abort();
	if (!words(plan.create) || words(plan.create) >= ARGV_MAX ||
	    words(plan.remove) >= ARGV_MAX || plan.drain_ms > 86400000)
		abort();
	if (words(plan.kill) >= ARGV_MAX)
		abort();
	if (words(plan.logger) >= ARGV_MAX || words(plan.logger_env) >= ARGV_MAX || plan.tty > 1 || plan.rows > 65535)
		abort();
	if (!plan.log_files || plan.buffer < BUFFER_MIN || plan.hold_ms > 86400000 || !strchr("bn", *plan.log_mode))
		abort();
	if (plan.isulad > 1 || plan.limit_ms > 86400000 || !plan.resize)
		abort();
	if (plan.join_count < 0 || plan.join_count > JOIN_MAX)
		abort();
	for (int i = 0; i < plan.join_count; i++)
		if (*plan.join[i] != '/')
			abort();
	if (plan.cgroup_count < 0 || plan.cgroup_count > CGROUPS_MAX)
		abort();
	for (int i = 0; i < plan.cgroup_count; i++)
		if (*plan.cgroup[i] != '/')
			abort();
	return 0;
}

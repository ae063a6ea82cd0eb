/* The plan: what one shim is to do, written by the daemon, read once. */
#include <errno.h>
#include <string.h>

#include "core.h"

enum { LIMIT_MAX_MS = 86400000 };	/* poll() takes an int: a day is more than any limit needs */

static const char *text_or(const char *data, size_t size, const char *key, const char *fallback)
{
	const char *value = fields_get(data, size, key);

	return value ? value : fallback;
}

static int command(const char *data, size_t size, const char *key, const char **out, int least)
{
	int count = fields_list(data, size, key, out, ARGV_MAX - 1);

	if (count < 0)
		return count;
	out[count] = NULL;
	return count < least ? -EINVAL : 0;
}

/* How many absolute paths there are under this key, or -errno. */
static int paths(const char *data, size_t size, const char *key, const char **out, int most)
{
	int count = fields_list(data, size, key, out, most);

	for (int i = 0; i < count; i++)
		if (out[i][0] != '/')
			return -EINVAL;
	return count;
}

static int places(struct plan *plan, const char *data, size_t size)
{
	plan->join_count = paths(data, size, "join", plan->join, JOIN_MAX);
	if (plan->join_count < 0)
		return plan->join_count;
	plan->cgroup_count = paths(data, size, "cgroup", plan->cgroup, CGROUPS_MAX);
	return plan->cgroup_count < 0 ? plan->cgroup_count : 0;
}

static int limits(struct plan *plan, const char *data, size_t size)
{
	if (fields_number(data, size, "run", &plan->run) || fields_number(data, size, "create_ms", &plan->create_ms) ||
	    fields_number(data, size, "remove_ms", &plan->remove_ms) ||
	    fields_number(data, size, "drain_ms", &plan->drain_ms) ||
	    fields_number(data, size, "rest_ms", &plan->rest_ms) == -EINVAL ||
	    fields_number(data, size, "report_last", &plan->report_last) == -EINVAL)
		return -EINVAL;
	if (plan->create_ms > LIMIT_MAX_MS || plan->remove_ms > LIMIT_MAX_MS || plan->drain_ms > LIMIT_MAX_MS ||
	    plan->rest_ms > LIMIT_MAX_MS)
		return -EINVAL;
	return 0;
}

/* A number of a plan's second generation, `fallback` where an older daemon does not name it. */
static int number_or(const char *data, size_t size, const char *key, uint64_t fallback, uint64_t most, uint64_t *out)
{
	*out = fallback;
	return fields_number(data, size, key, out) == -EINVAL || *out > most ? -EINVAL : 0;
}

static int streams(struct plan *plan, const char *data, size_t size)
{
	plan->json_log = text_or(data, size, "json_log", "");
	plan->sink_out = text_or(data, size, "sink_out", "");
	plan->sink_err = text_or(data, size, "sink_err", "");
	plan->in_from = text_or(data, size, "in_from", "");
	plan->resize = text_or(data, size, "resize", "");
	plan->log_mode = text_or(data, size, "log_mode", "blocking");
	if (number_or(data, size, "tty", 0, 1, &plan->tty) ||
	    number_or(data, size, "rows", 0, TTY_SIDE_MAX, &plan->rows) ||
	    number_or(data, size, "cols", 0, TTY_SIDE_MAX, &plan->cols) ||
	    number_or(data, size, "log_bytes", 0, INT64_MAX, &plan->log_bytes) ||
	    number_or(data, size, "log_files", 1, 1000, &plan->log_files) || !plan->log_files ||
	    number_or(data, size, "buffer", 1 << 20, 1 << 30, &plan->buffer) || plan->buffer < BUFFER_MIN ||
	    number_or(data, size, "hold_ms", 0, LIMIT_MAX_MS, &plan->hold_ms) ||
	    number_or(data, size, "isulad", 0, 1, &plan->isulad) ||
	    number_or(data, size, "limit_ms", 0, LIMIT_MAX_MS, &plan->limit_ms) ||
	    number_or(data, size, "follow", 0, 1, &plan->follow) ||
	    number_or(data, size, "handled", 0, 1, &plan->handled))
		return -EINVAL;
	return strcmp(plan->log_mode, "blocking") && strcmp(plan->log_mode, "non-blocking") ? -EINVAL : 0;
}

/* Fills `plan` with pointers into `data`, which must outlive it. 0, -EBADMSG (no plan), -EINVAL (a field is missing or
 * wrong), -E2BIG (a command is too long, or too many joins or cgroups), -EPROTO (a version this program does not
 * know). */
int plan_parse(struct plan *plan, const char *data, size_t size)
{
	int version = fields_check(data, size, "exitd-plan"), error;

	if (version < 0)
		return version;
	if (version != 1)
		return -EPROTO;
	memset(plan, 0, sizeof *plan);
	plan->id = text_or(data, size, "id", "");
	plan->exec = text_or(data, size, "exec", "");
	plan->pid_file = text_or(data, size, "pid_file", "");
	plan->runtime_log = text_or(data, size, "runtime_log", "");
	plan->log = text_or(data, size, "log", "");
	plan->oom = text_or(data, size, "oom", "");
	plan->memcg = text_or(data, size, "memcg", "");
	plan->keeper = text_or(data, size, "keeper", "");
	if (!*plan->id || strlen(plan->id) >= ID_MAX || strlen(plan->exec) >= ID_MAX || !*plan->pid_file ||
	    !record_takes(plan->id) || !record_takes(plan->exec))
		return -EINVAL;
	error = limits(plan, data, size);
	if (!error)
		error = places(plan, data, size);
	if (!error)
		error = streams(plan, data, size);
	if (!error)
		error = command(data, size, "create", plan->create, !plan->follow);
	if (!error)
		error = command(data, size, "kill", plan->kill, 0);
	if (!error)
		error = command(data, size, "remove", plan->remove, 0);
	if (!error)
		error = command(data, size, "logger", plan->logger, 0);
	if (!error)
		error = command(data, size, "logger_env", plan->logger_env, 0);
	return error;
}

/* `exitd-register`: the name of a run's init, and of what the message's descriptors are. A shim writes it, a keeper reads it;
 * one that names its shim is from a run that another keeper had. */
#include <errno.h>
#include <string.h>

#include "core.h"

#define KIND "exitd-register"

/* The message's size, or -E2BIG. Numbers that are 0 are left out. */
int registration_write(char *out, size_t size, const struct registration *r)
{
	struct writer w;

	writer_open(&w, out, size, KIND, 1);
	writer_text(&w, "id", r->id);
	writer_number(&w, "run", r->run);
	writer_text(&w, "exec", r->exec);
	if (r->pid) {
		writer_number(&w, "pid", (uint64_t)r->pid);
		writer_number(&w, "started", r->started);
	}
	if (r->shim_pid) {
		writer_number(&w, "shim", (uint64_t)r->shim_pid);
		writer_number(&w, "shim_started", r->shim_started);
	}
	writer_text(&w, "oom", r->oom);
	for (int i = 0; i < r->slot_count; i++)
		writer_number(&w, "seat", (uint64_t)r->slots[i]);
	return writer_close(&w);
}

/* A process by two keys: both or none of them. 0 or -EINVAL. */
static int read_process(const char *data, size_t size, const char *pid_key, const char *started_key, int *pid,
			uint64_t *started)
{
	uint64_t number = 0;
	int error = fields_number(data, size, pid_key, &number);

	*pid = 0;
	*started = 0;
	if (error == -ENOENT)
		return 0;
	if (error || number < 2 || number > INT32_MAX || fields_number(data, size, started_key, started))
		return -EINVAL;
	*pid = (int)number;
	return 0;
}

/* The number in a `seat` key, or -EINVAL; whether there is such a slot the caller knows. */
int slot_parse(const char *text)
{
	int number = 0, digits = 0;

	for (; *text >= '0' && *text <= '9' && digits < 4; digits++)
		number = number * 10 + (*text++ - '0');
	return digits && !*text ? number : -EINVAL;
}

/* 0, -EBADMSG (another kind, or cut short) or -EINVAL. What the texts of `r` point to is in `data`. */
int registration_read(struct registration *r, const char *data, size_t size)
{
	const char *slots[sizeof r->slots / sizeof *r->slots];
	int version = fields_check(data, size, KIND);

	if (version < 0)
		return version;
	memset(r, 0, sizeof *r);
	r->id = fields_get(data, size, "id");
	r->exec = fields_get(data, size, "exec");
	r->oom = fields_get(data, size, "oom");
	if (!r->exec)
		r->exec = "";
	if (!r->id || !*r->id || !r->oom || strlen(r->oom) >= OOM_PATH_MAX || fields_number(data, size, "run", &r->run) ||
	    read_process(data, size, "pid", "started", &r->pid, &r->started) ||
	    read_process(data, size, "shim", "shim_started", &r->shim_pid, &r->shim_started))
		return -EINVAL;
	r->slot_count = fields_list(data, size, "seat", slots, (int)(sizeof slots / sizeof *slots));
	for (int i = 0; i < r->slot_count; i++) {
		r->slots[i] = slot_parse(slots[i]);
		if (r->slots[i] < 0)
			return -EINVAL;
	}
	return r->slot_count < 0 ? -EINVAL : 0;
}

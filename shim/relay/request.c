/* One request of containerd: kept as it came until it is answered, and what of it the relay understands. */
#include <stdlib.h>
#include <string.h>

#include "relay.h"

#define TASKS "containerd.task."		/* v2 and v3 have the same messages */
#define SANDBOXES "containerd.runtime.sandbox."	/* the first field of each is the sandbox's id, as theirs is the task's */

static const struct {
	const char *service;
	const char *method;
	int kind;
} calls[] = {
	{ TASKS, "Wait", CALL_WAIT },
	{ TASKS, "Start", CALL_TURN },
	{ TASKS, "Pause", CALL_TURN },
	{ TASKS, "Resume", CALL_TURN },
	{ TASKS, "Create", CALL_CREATE },
	{ TASKS, "Delete", CALL_DELETE },
	{ TASKS, "Kill", CALL_KILL },
	{ TASKS, "Stats", CALL_STATS },
	{ TASKS, "Shutdown", CALL_SHUTDOWN },
	{ TASKS, "Connect", CALL_LOOK },
	{ TASKS, "Pids", CALL_LOOK },
	{ TASKS, "State", CALL_LOOK },
	{ SANDBOXES, "WaitSandbox", CALL_WAIT },
	{ SANDBOXES, "StartSandbox", CALL_TURN },
	{ SANDBOXES, "CreateSandbox", CALL_CREATE },
	{ SANDBOXES, "ShutdownSandbox", CALL_DELETE },
	{ SANDBOXES, "StopSandbox", CALL_KILL },
	{ SANDBOXES, "SandboxMetrics", CALL_STATS },
	{ SANDBOXES, "SandboxStatus", CALL_LOOK },
	{ SANDBOXES, "PingSandbox", CALL_LOOK },
	{ SANDBOXES, "Platform", CALL_LOOK },
};
enum { CALLS_KNOWN = sizeof calls / sizeof *calls };

static bool is(struct text text, const char *word)
{
	return text.size == strlen(word) && !memcmp(text.at, word, text.size);
}

static bool begins(struct text text, const char *word)
{
	return text.size >= strlen(word) && !memcmp(text.at, word, strlen(word));
}

/* What is not understood is exitd's to refuse. */
static void look_into(struct request *r)
{
	const char *at = r->data, *end = r->data + r->length;
	struct text service = { "", 0 }, method = { "", 0 }, payload = { "", 0 };
	struct field field;
	int more;

	while ((more = proto_next(&at, end, &field)) > 0) {
		if (field.is_text && field.number == 1)
			service = field.text;
		if (field.is_text && field.number == 2)
			method = field.text;
		if (field.is_text && field.number == 3)
			payload = field.text;
	}
	if (more < 0 || (!begins(service, TASKS) && !begins(service, SANDBOXES)))
		return;
	r->method = method;
	r->payload = payload;
	r->is_of_sandbox = begins(service, SANDBOXES);
	for (int i = 0; i < CALLS_KNOWN; i++)
		if (is(method, calls[i].method) && begins(service, calls[i].service))
			r->kind = calls[i].kind;
}

/* Takes the data over, which malloc made; NULL without memory, and then the data is gone too. */
struct request *request_new(uint32_t stream, char *data, uint32_t length, int64_t now_ms)
{
	struct request *r = calloc(1, sizeof *r);

	if (!r) {
		free(data);
		return NULL;
	}
	r->data = data;
	r->length = length;
	r->stream = stream;
	r->arrived_ms = now_ms;
	r->silent_ms = now_ms;
	r->method = (struct text){ "", 0 };
	r->payload = (struct text){ "", 0 };
	if (data)
		look_into(r);
	return r;
}

void request_free(struct request *r)
{
	free(r->data);
	free(r);
}

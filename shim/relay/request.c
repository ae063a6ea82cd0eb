/* One request of containerd: kept as it came until it is answered, and what of it the relay understands. */
#include <stdlib.h>
#include <string.h>

#include "relay.h"

#define SERVICES "containerd.task."	/* v2 and v3 have the same messages */

static int is(struct text text, const char *word)
{
	return text.size == strlen(word) && !memcmp(text.at, word, text.size);
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
	if (more < 0 || service.size < sizeof SERVICES - 1 || memcmp(service.at, SERVICES, sizeof SERVICES - 1))
		return;
	r->method = method;
	r->payload = payload;
	if (is(method, "Wait"))
		r->kind = CALL_WAIT;
	else if (is(method, "Start") || is(method, "Pause") || is(method, "Resume"))
		r->kind = CALL_TURN;
	else if (is(method, "Create"))
		r->kind = CALL_CREATE;
	else if (is(method, "Delete"))
		r->kind = CALL_DELETE;
	else if (is(method, "Kill"))
		r->kind = CALL_KILL;
	else if (is(method, "Stats"))
		r->kind = CALL_STATS;
	else if (is(method, "Shutdown"))
		r->kind = CALL_SHUTDOWN;
	else if (is(method, "Connect") || is(method, "Pids") || is(method, "State"))
		r->kind = CALL_LOOK;
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

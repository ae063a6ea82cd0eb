/* Which containers share a relay: the annotation of config.json that says so, found without building the document. */
#include <errno.h>
#include <string.h>

#include "relay.h"

#define DEPTH_MAX 64

static const char *const keys[] = { "io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id" };

struct scan {
	const char *at;
	const char *end;
};

static bool is(struct text text, const char *word)
{
	return text.size == strlen(word) && !memcmp(text.at, word, text.size);
}

static void blanks(struct scan *s)
{
	while (s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at)
		s->at++;
}

static bool next_is(struct scan *s, char c)
{
	blanks(s);
	if (s->at == s->end || *s->at != c)
		return false;
	s->at++;
	return true;
}

/* The bytes between the quotes; escapes stay as they are written. */
static int string(struct scan *s, struct text *out)
{
	if (!next_is(s, '"'))
		return -EBADMSG;
	out->at = s->at;
	for (; s->at < s->end && *s->at != '"'; s->at++)
		if (*s->at == '\\' && ++s->at == s->end)
			return -EBADMSG;
	if (s->at == s->end)
		return -EBADMSG;
	out->size = (size_t)(s->at++ - out->at);
	return 0;
}

/* Past one value of any kind. Brackets are counted, not matched: what is no JSON is the runtime's to refuse. */
static int skip(struct scan *s)
{
	struct text ignored;
	int depth = 0;

	do {
		blanks(s);
		if (s->at == s->end)
			return -EBADMSG;
		if (*s->at == '"') {
			if (string(s, &ignored))
				return -EBADMSG;
			continue;
		}
		if (*s->at == '}' || *s->at == ']') {
			if (--depth < 0)
				return -EBADMSG;
		} else if ((*s->at == '{' || *s->at == '[') && ++depth > DEPTH_MAX) {
			return -EBADMSG;
		}
		s->at++;
	} while (depth || (s->at < s->end && !strchr(",}] \t\r\n", *s->at)));
	return 0;
}

/* The next key of an object, its value next: 1, at the object's end 0, or -EBADMSG. */
static int member(struct scan *s, int *begun, struct text *key)
{
	if (next_is(s, '}'))
		return 0;
	if (*begun && !next_is(s, ','))
		return -EBADMSG;
	*begun = 1;
	return string(s, key) || !next_is(s, ':') ? -EBADMSG : 1;
}

static int annotations(struct scan *s, struct text *found)
{
	struct text key;
	int begun = 0, more;

	blanks(s);
	if (s->at == s->end || *s->at != '{')
		return skip(s);
	s->at++;
	while ((more = member(s, &begun, &key)) > 0) {
		struct text value = { s->at, 0 };

		blanks(s);
		if (s->at == s->end || *s->at != '"' ? skip(s) : string(s, &value))
			return -EBADMSG;
		for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
			if (is(key, keys[i]))
				found[i] = value;
	}
	return more;
}

/* The group's name into `out`: its length, 0 when there is none, -EBADMSG for what is no document, -E2BIG. */
int group_find(const char *json, size_t size, char *out, size_t room)
{
	struct scan s = { json, json + size };
	struct text found[sizeof keys / sizeof *keys] = { { json, 0 }, { json, 0 } }, key;
	int begun = 0, more;

	if (!next_is(&s, '{'))
		return -EBADMSG;
	while ((more = member(&s, &begun, &key)) > 0)
		if (is(key, "annotations") ? annotations(&s, found) : skip(&s))
			return -EBADMSG;
	if (more < 0)
		return more;
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		if (!found[i].size)
			continue;
		if (found[i].size >= room)
			return -E2BIG;
		memcpy(out, found[i].at, found[i].size);
		out[found[i].size] = 0;
		return (int)found[i].size;
	}
	return 0;
}

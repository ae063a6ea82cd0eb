/* Replies that exitd allowed to be given again: by method and payload, the oldest goes first. */
#include <stdlib.h>
#include <string.h>

#include "relay.h"

static bool same(struct text a, struct text b)
{
	return a.size == b.size && !memcmp(a.at, b.at, a.size);
}

static size_t size_of(const struct cached *e)
{
	return e->method.size + e->payload.size + e->reply.size;
}

static void drop(struct cache *c, struct cached **link)
{
	struct cached *e = *link;

	*link = e->next;
	c->count--;
	c->bytes -= size_of(e);
	free(e);
}

static struct text copy(char **at, struct text from)
{
	struct text made = { *at, from.size };

	memcpy(*at, from.at, from.size);
	*at += from.size;
	return made;
}

void cache_drop(struct cache *c, struct text method, struct text payload)
{
	for (struct cached **link = &c->first; *link;)
		if (same((*link)->method, method) && same((*link)->payload, payload))
			drop(c, link);
		else
			link = &(*link)->next;
}

/* What is too large, or finds no memory, is not kept: the cache promises nothing. */
void cache_put(struct cache *c, struct text method, struct text payload, struct text reply)
{
	size_t size = method.size + payload.size + reply.size;
	struct cached **link = &c->first, *e;
	char *at;

	cache_drop(c, method, payload);
	while (*link)
		link = &(*link)->next;
	e = size > CACHE_BYTES ? NULL : malloc(sizeof *e + size);
	if (!e)
		return;
	at = (char *)(e + 1);
	e->next = NULL;
	e->method = copy(&at, method);
	e->payload = copy(&at, payload);
	e->reply = copy(&at, reply);
	*link = e;
	c->count++;
	c->bytes += size;
	while (c->count > CACHE_MAX || c->bytes > CACHE_BYTES)
		drop(c, &c->first);
}

const struct cached *cache_find(const struct cache *c, struct text method, struct text payload)
{
	const struct cached *e = c->first;

	while (e && !(same(e->method, method) && same(e->payload, payload)))
		e = e->next;
	return e;
}

/* A task that is gone: Delete, State, Pids and Connect name it by the same bytes. */
void cache_forget(struct cache *c, struct text payload)
{
	for (struct cached **link = &c->first; *link;)
		if (same((*link)->payload, payload))
			drop(c, link);
		else
			link = &(*link)->next;
}

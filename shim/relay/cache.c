/* Replies that exitd allowed to be given again: by method and payload, the oldest goes first. */
#include <stdlib.h>
#include <string.h>

#include "relay.h"

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

void cache_drop(struct cache *c, struct text method, struct text payload)
{
	for (struct cached **link = &c->first; *link;)
		if (text_same((*link)->method, method) && text_same((*link)->payload, payload))
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
	e->method = text_copied(&at, method);
	e->payload = text_copied(&at, payload);
	e->reply = text_copied(&at, reply);
	*link = e;
	c->count++;
	c->bytes += size;
	while (c->count > CACHE_MAX || c->bytes > CACHE_BYTES)
		drop(c, &c->first);
}

const struct cached *cache_find(const struct cache *c, struct text method, struct text payload)
{
	const struct cached *e = c->first;

	while (e && !(text_same(e->method, method) && text_same(e->payload, payload)))
		e = e->next;
	return e;
}

/* A task that is gone: Delete, State, Pids and Connect name it by the same bytes. */
void cache_forget(struct cache *c, struct text payload)
{
	for (struct cached **link = &c->first; *link;)
		if (text_same((*link)->payload, payload))
			drop(c, link);
		else
			link = &(*link)->next;
}

/* The unanswered requests of one connection in their order, bounded in number and bytes. */
#include "relay.h"

void pending_init(struct pending *p)
{
	*p = (struct pending){ .last = &p->first };
}

bool pending_takes(const struct pending *p, uint32_t length)
{
	return p->count < PENDING_MAX && p->bytes + length <= PENDING_BYTES;
}

void pending_add(struct pending *p, struct request *r)
{
	*p->last = r;
	p->last = &r->next;
	if (!p->unsent)
		p->unsent = r;
	p->count++;
	p->bytes += r->length;
}

struct request *pending_find(const struct pending *p, uint32_t stream)
{
	struct request *r = p->first;

	while (r && r->stream != stream)
		r = r->next;
	return r;
}

void pending_drop(struct pending *p, struct request *r)
{
	struct request **link = &p->first;

	while (*link != r)
		link = &(*link)->next;
	*link = r->next;
	if (!r->next)
		p->last = link;
	if (p->unsent == r)
		p->unsent = r->next;
	p->count--;
	p->bytes -= r->length;
	request_free(r);
}

void pending_drop_answered(struct pending *p)
{
	for (struct request *r = p->first, *next; r; r = next) {
		next = r->next;
		if (r->answered && !r->owed)
			pending_drop(p, r);
	}
}

void pending_clear(struct pending *p)
{
	while (p->first)
		pending_drop(p, p->first);
}

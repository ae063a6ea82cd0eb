/* Texts in memory that is another's: a message's, a task's. */
#include <string.h>

#include "relay.h"

bool text_same(struct text a, struct text b)
{
	return a.size == b.size && !memcmp(a.at, b.at, a.size);
}

struct text text_copied(char **at, struct text from)
{
	struct text made = { *at, from.size };

	memcpy(*at, from.at, from.size);
	*at += from.size;
	return made;
}

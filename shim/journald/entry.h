/* The pure parts of exitd-journald: a container's output in, the journal's datagrams out. cffi reads this too. */
#ifndef EXITD_JOURNALD_ENTRY_H
#define EXITD_JOURNALD_ENTRY_H

#include <stddef.h>

/* cffi: begin */
enum {
	PIECE_MAX = 16384,	/* a longer line is cut */
	LABEL_MAX = 1024,	/* longest identifier, id or name, in bytes with its NUL */
	DATAGRAM_MAX = 24576,	/* room for a piece, the labels and their keys */
};

struct labels {
	const char *identifier;
	const char *id;		/* "": not known, and left out; the name likewise */
	const char *name;
};

struct piece {
	const char *text;
	size_t size;
	int priority;
	int partial;		/* no newline came behind it */
};

int entry_cut(const char *in, size_t size, int no_more, struct piece *out);
size_t entry_field(char *out, size_t room, const char *key, const char *value, size_t size);
size_t entry_format(char *out, size_t room, const struct labels *labels, const struct piece *piece);
/* cffi: end */

#endif

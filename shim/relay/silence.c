/* What the relays of one exitd leave each other word of: that it takes nothing in. Each would find that out by itself, and a
 * node's statistics are asked for of one relay after the other: who asks would wait as often as there are pods. The word is
 * <state>/shimv2/silent. It goes when exitd is heard again, and counts for FRESH_MS only. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "daemon.h"

enum { FRESH_MS = 5000, WORD_MAX = 128 };

static void path_of(const struct relay *r, char path[PATH_ROOM])
{
	snprintf(path, PATH_ROOM, "%s/shimv2/silent", r->words->state);
}

/* Whether something that was written has not been read. One that has read it may be slow with this answer alone. */
static bool is_unread(int fd)
{
	int unread = 0;

	return !ioctl(fd, TIOCOUTQ, &unread) && unread > 0;	/* SIOCOUTQ of unix(7) by the name that musl has */
}

/* Where it cannot be left each relay waits by itself. */
static void leave_word(struct relay *r, int64_t now_ms)
{
	char word[WORD_MAX];
	struct writer w;
	int fd, size;

	path_of(r, r->scratch);
	writer_open(&w, word, sizeof word, "silent", 1);
	writer_number(&w, "at_ms", (uint64_t)now_ms);
	size = writer_close(&w);
	fd = open(r->scratch, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return;
	if (write(fd, word, (size_t)size) != size)
		unlink(r->scratch);
	close(fd);
}

static bool is_left(struct relay *r, int64_t now_ms)
{
	char word[WORD_MAX];
	uint64_t at_ms = 0;
	ssize_t size;
	int fd;

	path_of(r, r->scratch);
	fd = open(r->scratch, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return false;
	size = read(fd, word, sizeof word);
	close(fd);
	return size > 0 && fields_check(word, (size_t)size, "silent") > 0 &&
	       !fields_number(word, (size_t)size, "at_ms", &at_ms) && at_ms <= (uint64_t)now_ms &&
	       (uint64_t)now_ms - at_ms < FRESH_MS;
}

/* Statistics are refused as soon as it is known, by this relay or by another, that exitd takes nothing in. */
void silence_settle(struct relay *r, struct connection *c, int64_t now_ms)
{
	int64_t since_ms = c->up.fd >= 0 ? session_owes(&c->session) : 0;
	bool is_seen = since_ms && now_ms >= since_ms + SILENCE_MS && is_unread(c->up.fd);

	if (!since_ms || (!is_seen && !is_left(r, now_ms)))
		return;
	if (is_seen)
		leave_word(r, now_ms);
	r->is_silent = 1;
	session_silent(&c->session);
}

/* exitd has been heard, or has ended: whatever comes next, it is silent no more. */
void silence_over(struct relay *r)
{
	if (!r->is_silent)
		return;
	r->is_silent = 0;
	path_of(r, r->scratch);
	unlink(r->scratch);
}

/* When something is due by itself. */
int64_t silence_due_ms(const struct connection *c, int64_t now_ms)
{
	int64_t since_ms = c->up.fd >= 0 ? session_owes(&c->session) : 0;

	return since_ms && since_ms + SILENCE_MS > now_ms ? since_ms + SILENCE_MS : INT64_MAX;
}

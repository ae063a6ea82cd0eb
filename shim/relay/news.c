/* What containerd has heard of each task: which of exitd's events it has taken, and which of an end the relay brings itself
 * while exitd does not. Events of one relay come in the order of exitd's log, so that they are of the oldest task of a name
 * whose deletion containerd has not heard of. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "relay.h"

#define SERVICE "containerd.services.events.ttrpc.v1.Events"
#define METHOD "Forward"
#define TYPE "containerd.events."

enum { ROOM = 1024, KEPT_MAX = 32 };

/* Of events that the relay brings, in this order; of others it only needs to know which they are. */
static const struct kind {
	int what;
	const char *topic;
	const char *type;
} kinds[] = {
	{ NEWS_CREATE, "/tasks/create", NULL },
	{ NEWS_START, "/tasks/start", NULL },
	{ NEWS_OOM, "/tasks/oom", TYPE "TaskOOM" },
	{ NEWS_EXIT, "/tasks/exit", TYPE "TaskExit" },
	{ NEWS_DELETE, "/tasks/delete", TYPE "TaskDelete" },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct text word(const char *text)
{
	return (struct text){ text, strlen(text) };
}

/* The text at the end of a path of field numbers, 0 behind the last; "" where there is none. */
static struct text inside(struct text message, const int *path)
{
	const char *at = message.at, *end = message.at + message.size;
	struct text found = { "", 0 };
	struct field field;

	while (proto_next(&at, end, &field) > 0)
		if (field.is_text && (int)field.number == *path)
			found = field.text;
	return path[1] ? inside(found, path + 1) : found;
}

/* A request of exitd's for containerd: whose event it is, and which. */
static int what_of(struct text request, struct text *id)
{
	struct text topic = inside(request, (const int[]){ 3, 1, 3, 0 });
	struct text event = inside(request, (const int[]){ 3, 1, 4, 2, 0 });
	struct text exec = inside(event, (const int[]){ 2, 0 });

	*id = inside(event, (const int[]){ 1, 0 });
	for (int i = 0; i < KINDS; i++)
		if (text_same(topic, word(kinds[i].topic)))
			return kinds[i].what == NEWS_EXIT && !text_same(exec, *id) ? NEWS_OTHER : kinds[i].what;
	return NEWS_OTHER;
}

static struct task *oldest(const struct witness *w, struct text id)
{
	struct task *found = NULL;

	for (struct task *t = w->first; t; t = t->next)
		if (!t->exec.size && text_same(t->id, id) && !(t->taken & NEWS_DELETE))
			found = t;
	return found;
}

/* Its name is another's now. */
static void give_up(struct task *t)
{
	t->taken |= NEWS_DELETE;
	t->brought = 0;
}

/* Whether containerd is not to get this event of exitd's, since the relay has brought the end that it tells, or the end
 * that it comes before. Else it goes its way; `note` says what that means once containerd has it. */
bool news_is_old(struct witness *w, struct text request, struct news *note)
{
	struct text id;
	int what = what_of(request, &id);
	struct task *t;

	for (t = w->first; t; t = t->next) {
		if (t->exec.size || !text_same(t->id, id))
			continue;
		if (what == NEWS_CREATE && t->stage == TASK_GONE)
			give_up(t);
		if (t->brought & NEWS_DELETE)
			return true;
	}
	t = oldest(w, id);
	*note = (struct news){ .task = t ? t->number : 0, .what = what };
	if (!t || what == NEWS_CREATE || what == NEWS_DELETE)
		return false;
	return t->brought & NEWS_EXIT || t->brought & what & NEWS_OOM;
}

static int next_of(const struct task *t)
{
	if (t->exec.size || (t->stage != TASK_ENDED && !t->is_deleted)) /* of execs exitd brings all */
		return 0;
	if (!(t->taken & NEWS_START))	/* exitd has more to report first */
		return 0;
	if (t->seen.oom_kills > 0 && !(t->taken & (NEWS_OOM | NEWS_EXIT)))
		return NEWS_OOM;
	if (!(t->taken & NEWS_EXIT))
		return NEWS_EXIT;
	return t->is_deleted && !(t->taken & NEWS_DELETE) ? NEWS_DELETE : 0;
}

static void put_inside(struct writer *out, int number, const struct writer *in)
{
	proto_text(out, number, in->data, in->used);
	out->overflow |= in->overflow;
}

static void put_event(struct writer *out, const struct task *t, int what)
{
	proto_text(out, 1, t->id.at, t->id.size);
	if (what == NEWS_OOM)
		return;
	if (what == NEWS_EXIT)
		proto_text(out, 2, t->id.at, t->id.size);
	proto_number(out, what == NEWS_EXIT ? 3 : 2, (uint64_t)t->seen.pid);
	witness_put_end(out, &t->seen, what == NEWS_EXIT ? 4 : 3);
}

/* As exitd writes it (supervisor/containerd/publish.py). The size, or -E2BIG. */
static int request_of(const struct witness *w, const struct task *t, int what, char *room)
{
	struct writer part[5];
	const struct kind *kind = kinds;

	for (int i = 0; i < 5; i++)
		part[i] = (struct writer){ .data = room + i * ROOM, .size = ROOM };
	while (kind->what != what)
		kind++;
	put_event(&part[0], t, what);
	proto_text(&part[1], 1, kind->type, strlen(kind->type));
	put_inside(&part[1], 2, &part[0]);
	witness_put_time(&part[2], 1, t->seen.realtime_ns);
	proto_text(&part[2], 2, w->name_space, strlen(w->name_space));
	proto_text(&part[2], 3, kind->topic, strlen(kind->topic));
	put_inside(&part[2], 4, &part[1]);
	put_inside(&part[3], 1, &part[2]);
	proto_text(&part[4], 1, SERVICE, strlen(SERVICE));
	proto_text(&part[4], 2, METHOD, strlen(METHOD));
	put_inside(&part[4], 3, &part[3]);
	return part[4].overflow ? -E2BIG : (int)part[4].used;
}

/* The next event of an end that exitd does not tell: its request, in memory that the caller frees, and what to note when
 * containerd has it. Of all tasks when exitd is away, else of those for which it has been stood in. NULL: there is none. */
char *news_next(const struct witness *w, int is_away, struct news *note, size_t *size)
{
	const struct task *found = NULL;
	char *room;
	int used;

	for (const struct task *t = w->first; t; t = t->next)
		if ((is_away || t->is_reported) && next_of(t))
			found = t;
	room = found ? malloc((size_t)5 * ROOM) : NULL;
	if (!room)
		return NULL;
	*note = (struct news){ .task = found->number, .what = next_of(found), .is_ours = 1 };
	used = request_of(w, found, note->what, room);
	if (used < 0) {
		free(room);
		return NULL;
	}
	memmove(room, room + 4 * ROOM, (size_t)used);
	*size = (size_t)used;
	return room;
}

/* containerd has taken it. */
void news_taken(struct witness *w, const struct news *note)
{
	for (struct task *t = w->first; t; t = t->next) {
		if (t->number != note->task)
			continue;
		t->taken |= note->what;
		t->brought |= note->is_ours ? note->what : 0;
	}
}

/* Whether a task that is gone is of use still: something of it is to be brought, or exitd is to hand over what containerd
 * has. `kept`: how many newer ones there are of these. */
static bool keeps(const struct task *t, int *kept)
{
	if (next_of(t))
		return true;
	return t->brought && (!(t->taken & NEWS_DELETE) || t->brought & NEWS_DELETE) && ++*kept <= KEPT_MAX;
}

/* Frees the tasks that are gone and of no more use, once they are not watched (`init_fd` is -1). */
void news_sweep(struct witness *w)
{
	int kept = 0;

	for (struct task **link = &w->first; *link;) {
		struct task *t = *link;

		if (t->stage != TASK_GONE || t->init_fd >= 0 || keeps(t, &kept)) {
			link = &t->next;
			continue;
		}
		*link = t->next;
		free(t->state_path);
		free(t);
	}
}

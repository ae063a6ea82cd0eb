/* The ends of the relay's tasks and of their execs: of each it has the pidfd of its first process, and reads the record
 * after that. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../core/kernel.h"
#include "daemon.h"

enum { ENDS = 16 };

/* The word that exitd has written of the task's state, in the place `word`: its length, or 0 where there is none now; -ESRCH
 * unless its first process lives. The word is read first: of who lives afterwards it was true when it was read. */
int watch_look(const struct task *t, char *word, size_t room)
{
	struct pollfd end = { .fd = t->init_fd, .events = POLLIN };
	ssize_t size = t->state_path ? readlink(t->state_path, word, room) : 0;

	if (t->init_fd < 0 || poll(&end, 1, 0))
		return -ESRCH;
	return size < 0 || (size_t)size == room ? 0 : (int)size;
}

static void let_go(struct task *t)
{
	if (t->init_fd >= 0)
		close(t->init_fd);	/* epoll forgets it with that */
	t->init_fd = -1;
}

/* Whether this process, by this start time, is there: the pid alone may be a stranger's by now. -errno: not known yet. */
static int is_there(int pid, uint64_t started)
{
	struct proc_stat now;
	int error = proc_stat_read(&now, pid);

	return no_such_process(error) ? 0 : error ? error : now.started == started;
}

static void again(struct task *t, int64_t now_ms)
{
	t->due_ms = now_ms + RETRY_MS;
}

/* Where its record is, and who its first process is: of an exec by exitd's word, of a task by exitd's note. That was written
 * before the Create was answered: what is not there will not come. As bundle_read. */
static int known(struct relay *r, const struct task *t, struct seen *out, const char **record)
{
	if (!t->exec.size)
		return bundle_read(t->bundle.at, out, r->scratch, record);
	*out = t->seen;
	*record = t->record.at;
	return 0;
}

/* Where exitd keeps its word of the task's state. Of execs and sandboxes it keeps none. 0 or -errno. */
static int find_state(struct relay *r, struct task *t)
{
	const char *path;
	int error;

	if (t->exec.size || t->is_sandbox || t->state_path)
		return 0;
	error = bundle_state(t->bundle.at, r->scratch, &path);
	if (error || !*path)
		return error;
	t->state_path = strdup(path);
	return t->state_path ? 0 : -ENOMEM;
}

static void meet(struct relay *r, struct task *t, int64_t now_ms)
{
	struct epoll_event wanted = { .events = EPOLLIN, .data.ptr = t };
	const char *record;
	struct seen init;
	int error = known(r, t, &init, &record), fd, found;

	error = error ? error : find_state(r, t);
	if (is_short(error))
		return again(t, now_ms);
	if (error)
		return witness_unread(&r->witness, t);
	fd = pidfd_open_raw(init.pid);
	found = is_there(init.pid, init.started);
	if (found < 0 || (found && (fd < 0 || epoll_ctl(r->inits.fd, EPOLL_CTL_ADD, fd, &wanted)))) {
		if (fd >= 0)
			close(fd);
		return again(t, now_ms);
	}
	witness_watched(&r->witness, t, init.pid, init.started, fd);
	if (!found) {
		let_go(t);
		witness_dead(&r->witness, t, now_ms);
	}
}

/* How it has ended: by its record, or by the note, where exitd writes the end before it removes the record. 0; -EAGAIN while
 * neither says it; -errno. */
static int find_end(struct relay *r, const struct task *t, struct seen *out)
{
	const char *record;
	struct seen noted;
	int error = known(r, t, &noted, &record);

	if (error)
		return error;
	error = bundle_record(record, t->seen.pid, t->seen.started, out);
	if (error != -EAGAIN || t->exec.size)
		return error;
	error = known(r, t, &noted, &record); /* once more: it may have been written since */
	if (error || !noted.realtime_ns || noted.pid != t->seen.pid || noted.started != t->seen.started)
		return error ? error : -EAGAIN;
	*out = noted;
	return 0;
}

/* The record of who has ended is written before init is reaped: none will come which is not there after that. */
static void look(struct relay *r, struct task *t, int64_t now_ms)
{
	int found = is_there(t->seen.pid, t->seen.started), error;
	struct seen seen;

	error = find_end(r, t, &seen);
	if (!error)
		witness_read(&r->witness, t, &seen);
	else if (found || is_short(error))
		t->due_ms = now_ms + (r->is_away ? RETRY_MS : READ_MS);	/* its shim may stand still for long */
	else
		witness_unread(&r->witness, t);
}

static bool is_waiting(const struct task *t)
{
	return t->is_wanted && !t->is_noted;
}

/* For exitd, which does not hear of the Delete that the relay answers: it removes the task when it is back. */
static void leave_word(struct relay *r, struct task *t, int64_t now_ms)
{
	struct words of = *r->words;

	of.id = t->id.at;
	t->is_noted = !fate_leave_word(&of, t->bundle.at, "");
	r->has_deleted |= t->is_noted;
	if (!t->is_noted)
		again(t, now_ms);
}

/* Some inits have ended. */
void watch_read(struct relay *r, int64_t now_ms)
{
	struct epoll_event events[ENDS];
	int count = epoll_wait(r->inits.fd, events, ENDS, 0);

	for (int i = 0; i < count; i++) {
		struct task *t = events[i].data.ptr;

		let_go(t);
		if (t->stage == TASK_WATCHED)
			witness_dead(&r->witness, t, now_ms);
	}
}

/* All that can be done without waiting. A new task is met in the loop's next turn: the answer to its Create goes first. */
void watch_settle(struct relay *r, int64_t now_ms)
{
	int gone = 0;

	for (struct task *t = r->witness.first; t; t = t->next) {
		if (t->stage == TASK_MADE && !t->due_ms)
			t->due_ms = now_ms;
		else if (t->stage == TASK_MADE && now_ms >= t->due_ms)
			meet(r, t, now_ms);
		else if (t->stage == TASK_DEAD && now_ms >= t->due_ms)
			look(r, t, now_ms);
		else if (t->stage == TASK_ENDED && is_waiting(t) && now_ms >= t->due_ms)
			leave_word(r, t, now_ms);
		else if (t->stage == TASK_GONE)
			let_go(t);
		gone |= t->stage == TASK_GONE;
	}
	if (gone)
		news_sweep(&r->witness);
}

/* When something is due by itself. */
int64_t watch_due_ms(const struct relay *r)
{
	int64_t at_ms = INT64_MAX;

	for (const struct task *t = r->witness.first; t; t = t->next)
		if ((t->stage == TASK_MADE || t->stage == TASK_DEAD || (t->stage == TASK_ENDED && is_waiting(t))) &&
		    t->due_ms < at_ms)
			at_ms = t->due_ms;
	return at_ms;
}

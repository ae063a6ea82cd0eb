/* The kernel's log from one moment on: who of one cgroup was killed for memory. A scope's counter is gone with its last
 * process, and what the log says may have been overwritten before a daemon looks.
 *
 * The lines (mm/oom_kill.c), the first of them left out by the kernel when there are more than ten in five seconds:
 *
 *	oom-kill:constraint=CONSTRAINT_MEMCG,...,task_memcg=/system.slice/x.scope,task=tail,pid=28900,uid=0
 *	Memory cgroup out of memory: Killed process 28900 (tail) total-vm:34520kB, ...
 *
 * One memory kill is written at a time. Between the lines is the kill itself. Cgroups and programs have names of their
 * owners' choosing: a first line in which the words around the cgroup come twice names none, and only what the kernel
 * itself wrote counts (Documentation/ABI/testing/dev-kmsg). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core.h"

enum { RECORD_BYTES = 8192, RECORDS_MAX = 20000, LOOK_MS = 200, NOT_CHOSEN = -1 };

/* A text that is not terminated. */
struct span {
	const char *at;
	size_t size;
};

static int starts(struct span s, const char *word)
{
	return s.size >= strlen(word) && !memcmp(s.at, word, strlen(word));
}

static struct span behind(struct span s, size_t count)
{
	return (struct span){ s.at + count, s.size - count };
}

/* Where the last `word` begins, or -1; `count` of them there are. */
static ssize_t last(struct span s, const char *word, int *count)
{
	ssize_t found = -1;

	*count = 0;
	for (size_t at = 0; at < s.size; at++)
		if (starts(behind(s, at), word))
			found = (ssize_t)at, ++*count;
	return found;
}

/* The pid that the text begins with, and how many digits it has. 0: there is none. */
static int number(struct span s, size_t *digits)
{
	int64_t value = 0;

	for (*digits = 0; *digits < s.size && *digits < 10; ++*digits) {
		if (s.at[*digits] < '0' || s.at[*digits] > '9')
			break;
		value = value * 10 + s.at[*digits] - '0';
	}
	return *digits && value > 0 && value <= INT32_MAX ? (int)value : 0;
}

/* Whether these are digits, one at least, to the end. */
static bool is_number(struct span s)
{
	size_t digits = 0;

	while (digits < s.size && s.at[digits] >= '0' && s.at[digits] <= '9')
		digits++;
	return digits && digits == s.size;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Takes one byte off: the log has what is not printable, and the backslash, as \xHH. */
static int unescaped(struct span *s)
{
	int byte = (unsigned char)s->at[0], eaten = 1;

	if (s->size >= 4 && s->at[0] == '\\' && s->at[1] == 'x' && hex(s->at[2]) >= 0 && hex(s->at[3]) >= 0)
		byte = hex(s->at[2]) * 16 + hex(s->at[3]), eaten = 4;
	*s = behind(*s, (size_t)eaten);
	return byte;
}

/* The cgroup, or one below it. */
static bool is_within(struct span path, const char *cgroup)
{
	while (*cgroup) {
		if (!path.size || unescaped(&path) != (unsigned char)*cgroup++)
			return false;
	}
	return !path.size || path.at[0] == '/';
}

/* 1: the victim is one of ours, 0: of others, NOT_CHOSEN: this is no such line. The pid stands at the end, behind all
 * that others have named. */
static int chosen(const struct kmsg *k, struct span s)
{
	int count, paths, tasks, pid;
	ssize_t uid_at = last(s, ",uid=", &count), pid_at, path_at, task_at;
	size_t digits;

	if (!starts(s, "oom-kill:constraint=") || uid_at < 0 || !is_number(behind(s, (size_t)uid_at + 5)))
		return NOT_CHOSEN;
	pid_at = last((struct span){ s.at, (size_t)uid_at }, ",pid=", &count);
	if (pid_at < 0)
		return NOT_CHOSEN;
	pid = number(behind(s, (size_t)pid_at + 5), &digits);
	if (!pid || (size_t)pid_at + 5 + digits != (size_t)uid_at)
		return NOT_CHOSEN;
	path_at = last(s, ",task_memcg=", &paths);
	task_at = last(s, ",task=", &tasks);
	if (paths != 1 || tasks != 1 || task_at < path_at + 12)
		return pid == k->pid;
	return is_within((struct span){ s.at + path_at + 12, (size_t)(task_at - path_at) - 12 }, k->cgroup);
}

/* What stands behind "out of memory", or a span without a place. */
static struct span out_of_memory(struct span s)
{
	static const char *const heads[] = { "Memory cgroup out of memory", "Out of memory" };
	static const char aside[] = " (oom_kill_allocating_task)";

	for (int i = 0; i < 2; i++) {
		if (!starts(s, heads[i]))
			continue;
		s = behind(s, strlen(heads[i]));
		return starts(s, aside) ? behind(s, strlen(aside)) : s;
	}
	return (struct span){ NULL, 0 };
}

/* The text of a record that the kernel wrote: "PRIORITY,NUMBER,TIME,FLAGS[,...];TEXT\n..." with a facility of 0. */
static int text_of(struct span record, struct span *text)
{
	const char *semicolon = memchr(record.at, ';', record.size), *end;
	int commas = 0;

	/* The priority in the lower three bits, so a facility of 0 has one digit. */
	if (!semicolon || record.size < 2 || record.at[0] < '0' || record.at[0] > '7' || record.at[1] != ',')
		return 0;
	for (const char *at = record.at; at < semicolon; at++)
		commas += *at == ',';
	*text = behind(record, (size_t)(semicolon - record.at) + 1);
	end = memchr(text->at, '\n', text->size);
	if (end)
		text->size = (size_t)(end - text->at);
	return commas >= 3;
}

/* Read one record, any bytes. 1 when it completes a memory kill of ours. */
int kmsg_take(struct kmsg *k, const char *record, size_t size)
{
	static const char killed[] = ": Killed process ";
	struct span text, rest;
	size_t digits;
	int pid, ours, count;

	if (!text_of((struct span){ record, size }, &text))
		return 0;
	ours = chosen(k, text);
	if (ours != NOT_CHOSEN) {
		k->chosen = ours;
		return 0;
	}
	rest = out_of_memory(text);
	if (!rest.at)
		return 0;
	if (!starts(rest, killed)) {	/* it was dying already */
		if (last(rest, " is already exiting", &count) >= 0)
			k->chosen = NOT_CHOSEN;
		return 0;
	}
	rest = behind(rest, strlen(killed));
	pid = number(rest, &digits);
	if (!pid || !starts(behind(rest, digits), " ("))
		return 0;
	/* The leader of the process is in the first line; the second may name another of its threads. */
	ours = k->chosen == NOT_CHOSEN ? pid == k->pid : k->chosen;
	k->chosen = NOT_CHOSEN;
	k->kills += ours;
	return ours;
}

/* From now on. `cgroup` is the path from the top of its hierarchy as the log names it, "" for nothing to be read; `pid`
 * is init's. Both as the first namespaces know them. */
void kmsg_begin(struct kmsg *k, const char *path, const char *cgroup, int pid)
{
	*k = (struct kmsg){ .fd = -1, .cgroup = cgroup, .pid = pid, .chosen = NOT_CHOSEN };
	if (*cgroup)
		k->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (k->fd >= 0)
		lseek(k->fd, 0, SEEK_END);
}

/* How many memory kills of ours the log has by now, or -1: none, and there may have been some. Waits at most LOOK_MS, and
 * only for the second line of a kill whose first one was read. */
int64_t kmsg_look(struct kmsg *k)
{
	static char record[RECORD_BYTES];
	int64_t until_ns = now_ns(CLOCK_MONOTONIC) + LOOK_MS * INT64_C(1000000), left_ns;
	ssize_t got;

	for (int count = 0; k->fd >= 0 && count < RECORDS_MAX; count++) {
		left_ns = until_ns - now_ns(CLOCK_MONOTONIC);
		if (left_ns <= 0)
			break;
		got = read(k->fd, record, sizeof record);
		if (got > 0)
			kmsg_take(k, record, (size_t)got);
		else if (got < 0 && errno == EAGAIN && k->chosen == 1)
			poll(&(struct pollfd){ .fd = k->fd, .events = POLLIN }, 1, (int)(left_ns / 1000000) + 1);
		else if (got == 0 || (errno != EINTR && errno != EPIPE))	/* EPIPE: some were overwritten */
			break;
	}
	return k->kills > 0 ? k->kills : -1;
}

void kmsg_end(struct kmsg *k)
{
	if (k->fd >= 0)
		close(k->fd);
	k->fd = -1;
}

/* What the kernel tells about processes and memory kills in small text files. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core.h"
#include "kernel.h"

/* Reads a decimal at `*at` (with an optional sign) and moves behind it and one blank. -1: no number there. */
static int number(const char **at, const char *end, int64_t *out)
{
	const char *p = *at;
	int negative = p < end && *p == '-';
	uint64_t value = 0;

	p += negative;
	if (p == end || *p < '0' || *p > '9')
		return -1;
	for (; p < end && *p >= '0' && *p <= '9'; p++)
		value = value > (UINT64_MAX >> 1) / 10 ? UINT64_MAX >> 1 : value * 10 + (uint64_t)(*p - '0');
	if (value > UINT64_MAX >> 1)
		value = UINT64_MAX >> 1;
	*out = negative ? -(int64_t)value : (int64_t)value;
	*at = p + (p < end);
	return 0;
}

/* What is between the first '(' and the last ')', at `end`, as far as there is room; "" where there is none. */
static void copy_name(struct proc_stat *out, const char *data, const char *end)
{
	const char *begin = memchr(data, '(', (size_t)(end - data));
	size_t size = begin ? (size_t)(end - begin) - 1 : 0;

	if (begin)
		memcpy(out->name, begin + 1, size < sizeof out->name ? size : sizeof out->name - 1);
}

/* /proc/PID/stat (proc(5)): fields 3, 4, 6, 9, 22, 35 and 52. The command name may hold anything, so the last ')' counts.
 * 0 or -EBADMSG. Field 52 is 0 for a reader without CAP_SYS_PTRACE. Field 35 is 0 for him too; to others it is 1 for whatever
 * does not run (fs/proc/array.c: do_task_stat, `permitted`). */
int proc_stat_parse(struct proc_stat *out, const char *data, size_t size)
{
	const char *end = data + size, *at = end;
	int64_t value = 0;

	memset(out, 0, sizeof *out);
	while (at > data && at[-1] != ')')
		at--;
	if (at == data || end - at < 4 || at[0] != ' ' || at[2] != ' ')
		return -EBADMSG;
	copy_name(out, data, at - 1);
	out->state = at[1];
	at += 3;
	for (int field = 4; field <= 52; field++) {
		if (number(&at, end, &value))
			return -EBADMSG;
		if (field == 4)
			out->ppid = (int)value;
		if (field == 6)
			out->session = (int)value;
		if (field == 9)
			out->began = !(value & PF_FORKNOEXEC_BIT), out->exiting = !!(value & PF_EXITING_BIT);
		if (field == 22)
			out->started = (uint64_t)value;
		if (field == 35)
			out->is_shown = value == 1;
		if (field == 52)
			out->exit_status = (int)value;
	}
	return 0;
}

/* A small file into `out`, NUL-terminated; its length or -errno. */
static ssize_t slurp(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return -errno;
	do
		got = read(fd, out, size - 1);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		got = -errno;
	else
		out[got] = 0;
	close(fd);
	return got;
}

/* 0, -EBADMSG, or -errno (-ENOENT: no such process). */
int proc_stat_read(struct proc_stat *out, int pid)
{
	char path[32], text[1024];
	ssize_t got;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	got = slurp(path, text, sizeof text);
	return got < 0 ? (int)got : proc_stat_parse(out, text, (size_t)got);
}

/* A pid file's text: digits and at most one newline, 2 or more; else -EINVAL. 0, 1 and negative numbers are no
 * container's init, and kill() would take them for groups. */
int pid_parse(const char *data, size_t size)
{
	int pid = 0;

	if (size && data[size - 1] == '\n')
		size--;
	if (!size || size > 9)
		return -EINVAL;
	for (size_t i = 0; i < size; i++) {
		if (data[i] < '0' || data[i] > '9')
			return -EINVAL;
		pid = pid * 10 + (data[i] - '0');
	}
	return pid > 1 ? pid : -EINVAL;
}

/* The count behind a line that begins with "oom_kill " (memory.oom_control, memory.events), or -1. */
int64_t oom_parse(const char *data, size_t size)
{
	const char *at = data, *end = data + size;
	int64_t value;

	while (at < end) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));

		line_end = line_end ? line_end : end;
		if (line_end - at > 9 && !memcmp(at, "oom_kill ", 9)) {
			at += 9;
			return number(&at, line_end, &value) || value < 0 ? -1 : value;
		}
		at = line_end + (line_end < end);
	}
	return -1;
}

/* The counter in the file at `path`, or -1 when it cannot be known. */
int64_t oom_read(const char *path)
{
	char text[512];
	ssize_t got = *path ? slurp(path, text, sizeof text) : -1;

	return got < 0 ? -1 : oom_parse(text, (size_t)got);
}

/* "" when it cannot be known. */
void boot_id_read(char out[BOOT_ID_SIZE])
{
	if (slurp("/proc/sys/kernel/random/boot_id", out, BOOT_ID_SIZE) != BOOT_ID_SIZE - 1)
		out[0] = 0;
}

int64_t now_ns(int clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

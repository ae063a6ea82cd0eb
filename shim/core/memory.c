/* The count of memory kills, read before its cgroup is gone: systemd removes a scope's with its last process, and the
 * counter with it, often before init's parent has been woken. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "core.h"

static int64_t count(int fd)
{
	char text[512];
	ssize_t got;

	/* From the beginning: the kernel writes the text anew, and a poll for POLLPRI waits for the change after this. */
	do
		got = pread(fd, text, sizeof text, 0);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -1 : oom_parse(text, (size_t)got);
}

/* Watch the counter at `path`, "" for none. `fd` is to be polled for POLLPRI, -1 when there is nothing to watch. Only
 * cgroup v2 wakes a poll; v1's counter is read at the end alone. */
void memory_begin(struct memory *memory, const char *path)
{
	memory->kills = -1;
	memory->fd = *path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	memory_look(memory);
}

/* Read what has changed. A cgroup that is gone is let go: its poll would never wait again. */
void memory_look(struct memory *memory)
{
	int64_t kills = memory->fd < 0 ? -1 : count(memory->fd);

	if (kills >= 0)
		memory->kills = kills;
	else
		memory_end(memory);
}

void memory_end(struct memory *memory)
{
	if (memory->fd >= 0)
		close(memory->fd);
	memory->fd = -1;
}

/* The count at the end, or the last one if that had any kill in it; else -1: none were seen, and there may have been
 * one since. */
int64_t memory_last(const struct memory *memory, const char *path)
{
	int64_t kills = memory->fd < 0 ? oom_read(path) : count(memory->fd);

	if (kills < 0)
		kills = memory->kills > 0 ? memory->kills : -1;
	return kills;
}

/* What lies on the disk of a task's end: exitd's note in the bundle, and the record in the run directory that it names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon.h"

/* A file of at most `room` bytes: its size, or -errno. */
static int read_file(const char *path, char *out, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t got;

	if (fd < 0)
		return -errno;
	got = read(fd, out, room);
	close(fd);
	return got < 0 ? -EIO : (int)got;
}

/* What the kernel has no room for now it may have in a moment. */
bool is_short(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

/* The end that exitd has left in the bundle before it removed the record, and has judged. */
static void read_end(const char *text, size_t size, struct seen *out)
{
	uint64_t code, at_ns, kills;

	if (fields_number(text, size, "code", &code) || code > UNKNOWN_STATUS ||
	    fields_number(text, size, "at_ns", &at_ns) || !at_ns || at_ns > INT64_MAX)
		return;
	out->status = (int)code;
	out->realtime_ns = (int64_t)at_ns;
	out->began = 1;
	if (!fields_number(text, size, "oom_kills", &kills) && kills <= INT64_MAX)
		out->oom_kills = (int64_t)kills;
}

/* What exitd has noted in the bundle: its size, -EBADMSG or -errno. */
static int read_note(const char *bundle, char text[MESSAGE_MAX])
{
	int size;

	snprintf(text, PATH_ROOM, "%s/exitd.task", bundle);	/* read when it has been opened */
	size = read_file(text, text, MESSAGE_MAX);
	return size < 0 || fields_check(text, (size_t)size, "task") > 0 ? size : -EBADMSG;
}

/* The note: the task's init, where its record is, and how it ended where exitd has removed that (`realtime_ns` is not 0
 * then). `record` is in the `room`. 0; -ENOENT without a note; -EBADMSG; -errno. */
int bundle_read(const char *bundle, struct seen *out, char room[NOTE_ROOM], const char **record)
{
	const char *directory, *text = room;
	uint64_t pid, started;
	int size = read_note(bundle, room);

	if (size < 0)
		return size;
	if (fields_number(text, (size_t)size, "pid", &pid) ||
	    fields_number(text, (size_t)size, "started", &started) || pid <= 1 || pid > INT32_MAX ||
	    !(directory = fields_get(text, (size_t)size, "directory")))
		return -EBADMSG;
	*out = (struct seen){ .status = UNKNOWN_STATUS, .pid = (int)pid, .started = started };
	read_end(text, (size_t)size, out);
	snprintf(room + size, PATH_ROOM, "%s/exit.json", directory);
	*record = room + size;
	return 0;
}

/* Where exitd keeps its word of the task's state; "" in the note of an exitd that keeps none. As bundle_read. */
int bundle_state(const char *bundle, char room[NOTE_ROOM], const char **path)
{
	const char *found;
	int size = read_note(bundle, room);

	if (size < 0)
		return size;
	found = fields_get(room, (size_t)size, "state");
	*path = found ? found : "";
	return 0;
}

/* 0; -EAGAIN while there is no record of this process; -errno for want of descriptors or memory. */
int bundle_record(const char *record, int pid, uint64_t started, struct seen *out)
{
	char data[RECORD_SIZE];
	int size = read_file(record, data, sizeof data);

	if (is_short(size))
		return size;
	return size < 0 ? -EAGAIN : evidence_of(out, data, (size_t)size, pid, started);
}

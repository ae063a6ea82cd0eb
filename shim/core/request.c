/* What a shim asks of its keeper: to know the run, and to give up its copy of a descriptor. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

static struct registration registration_of(const struct shim *shim)
{
	return (struct registration){
		.id = shim->plan.id,
		.exec = shim->plan.exec,
		/* A path too long for the keeper's table costs the OOM count, not the exit. */
		.oom = strlen(shim->plan.oom) < OOM_PATH_MAX ? shim->plan.oom : "",
		.run = shim->plan.run,
		.pid = shim->init_pid,
		.started = shim->init_started,
	};
}

/* Names init, so that the keeper writes a journal entry should it have to reap init, and gives it a copy of a tty's master, which
 * must outlive this shim. 0 or -errno; waits as long as the connection does. */
int request_register(const struct shim *shim, int fd)
{
	struct registration r = registration_of(shim);
	char text[1024];

	return message_send(fd, text, registration_write(text, sizeof text, &r), shim->streams.master_fd, 0);
}

/* An empty slot holds /dev/null (setup.c). A keeper that had it would find something to read there for ever. */
static bool is_stream(int fd)
{
	struct stat found;

	return fd >= 0 && !fstat(fd, &found) && (!S_ISCHR(found.st_mode) || isatty(fd));
}

/* For a keeper that was not there when the run began: the same, and who registers, with a copy of every descriptor that a
 * replacement of this shim would need. The message's size, or -E2BIG; the descriptors and their count. */
static int write_anew(const struct shim *shim, char *text, size_t size, int *fds, int *count)
{
	const struct streams *s = &shim->streams;
	const int slots[] = { OUT_FD, ERR_FD, IN_WRITE_FD, STAGE_READ_FD, STAGE_WRITE_FD };
	const int held[] = { s->source[0].fd, s->source[1].fd, s->master_fd < 0 ? s->in_fd : -1, s->stage_read_fd,
			     s->stage_write_fd };
	struct registration r = registration_of(shim);
	struct proc_stat self;

	if (!proc_stat_read(&self, getpid())) {
		r.shim_pid = getpid();
		r.shim_started = self.started;
	}
	*count = 0;
	for (int i = 0; i < (int)(sizeof slots / sizeof *slots); i++)
		if (is_stream(held[i])) {
			r.slots[r.slot_count++] = slots[i];
			fds[(*count)++] = held[i];
		}
	return registration_write(text, size, &r);
}

/* Over a connection whose answer is awaited elsewhere. 0, or -errno: it takes no message now. */
int request_register_anew(const struct shim *shim, int fd)
{
	int fds[PASSED_MAX], count, size;
	char text[1024];

	size = write_anew(shim, text, sizeof text, fds, &count);
	return message_send_all(fd, text, size, fds, count, MSG_DONTWAIT);
}

/* Asks the keeper to give up its copy of a slot's descriptor, likewise. */
int request_release(const struct shim *shim, int fd, int slot)
{
	struct writer w;
	char text[512];

	writer_open(&w, text, sizeof text, "exitd-release", 1);
	writer_text(&w, "id", shim->plan.id);
	writer_number(&w, "run", shim->plan.run);
	writer_text(&w, "exec", shim->plan.exec);
	writer_number(&w, "seat", (uint64_t)slot);
	return message_send(fd, text, writer_close(&w), -1, MSG_DONTWAIT);
}

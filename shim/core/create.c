/* runtime create, and the proof that the pid it names is this shim's own child. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel.h"
#include "shim.h"

enum { BEGINS_MS = 5000 };	/* from a runtime's death until what it had made has begun, or ended */

static int read_pid(const char *path)
{
	/* The runtime made it: whatever it is, a fifo too, opening it must not wait. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), error;
	char text[32];
	ssize_t got;

	if (fd < 0)
		return -errno;
	got = read(fd, text, sizeof text);
	error = got < 0 ? -errno : pid_parse(text, (size_t)got);
	close(fd);
	return error;
}

/* Our child by the kernel's own word. A zombie is one too: a container that was created and has already ended. */
static int is_child(int pid)
{
	siginfo_t info;

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) ? -errno : 0;
}

static int hold(struct shim *shim, int pid)
{
	struct proc_stat stat = { .started = 0 };
	int error;

	/* Only the parent can do this without a race: until it reaps, the pid is this process and no other. */
	shim->init_fd = pidfd_open_raw(pid);
	if (shim->init_fd < 0)
		return -errno;
	error = proc_stat_read(&stat, pid);
	shim->init_pid = pid;
	shim->init_started = stat.started;
	return error;
}

/* For a daemon that comes later: what was made. Exclusive: a run is created once. */
int leave_word(struct shim *shim)
{
	struct writer w;
	char text[256];
	int size, fd, error = 0;

	writer_open(&w, text, sizeof text, "exitd-created", 1);
	writer_number(&w, "pid", (uint64_t)shim->init_pid);
	writer_number(&w, "started", shim->init_started);
	size = writer_close(&w);
	fd = open("created", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, text, (size_t)size) != size)
		error = errno ? -errno : -EIO;
	close(fd);
	return error;
}

/* Whether the runtime said so or not: an exec that has begun is one. 0: this is none, or has not. */
static int begun_exec(const struct shim *shim)
{
	return *shim->plan.exec ? begun_child(BEGINS_MS) : 0;
}

int create(struct shim *shim, const char **stage, int *wait_status)
{
	struct command command = { .argv = (char *const *)shim->plan.create, .out_fd = OUT_WRITE_FD,
				   .err_fd = ERR_WRITE_FD, .in_fd = shim->streams.in_read_fd,
				   .limit_ms = shim->plan.create_ms };
	int error, pid = 0;

	*stage = "answers";
	error = answers_begin(shim);
	if (!error)
		*stage = "join", error = join_begin(shim);
	if (!error)
		*stage = "console", error = console_begin(shim);
	if (!error)
		*stage = "runtime", error = command_run(&command, shim->signal_fd, wait_status);
	join_end(shim);
	if (error || *wait_status)
		pid = begun_exec(shim);
	if (pid || (!error && !*wait_status))
		*stage = "console", error = console_take(shim), *wait_status = 0;
	console_end(shim);
	if (error)
		return error;
	if (*wait_status)
		return -ECHILD;
	*stage = "pid file";
	if (!pid)
		pid = read_pid(shim->plan.pid_file);
	if (pid < 0)
		return pid;
	*stage = "not a child";
	error = is_child(pid);
	if (error)
		return error;
	*stage = "init";
	return hold(shim, pid);
}

/* A replacement shim: init is alive under the keeper, or has ended since. 0, -ESRCH when it is gone, or -errno when that
 * cannot be said. */
int find_again(struct shim *shim)
{
	char text[256];
	int fd = open("created", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text);
	struct proc_stat stat;
	uint64_t pid = 0;
	int error = fd < 0 ? errno : got < 0 ? errno : 0;

	if (fd >= 0)
		close(fd);
	if (error && error != ENOENT)
		return -error;
	if (got <= 0 || fields_check(text, (size_t)got, "exitd-created") < 1 ||
	    fields_number(text, (size_t)got, "pid", &pid) || pid < 2 || pid > INT32_MAX ||
	    fields_number(text, (size_t)got, "started", &shim->init_started))
		return -ESRCH;
	shim->init_fd = pidfd_open_raw((int)pid);
	error = shim->init_fd < 0 ? -errno : proc_stat_read(&stat, (int)pid);
	/* Opened first, compared second: if the start time fits now, the descriptor cannot be a stranger's. */
	if (!error && stat.started != shim->init_started)
		error = -ESRCH;
	shim->init_pid = (int)pid;
	if (!error)
		return 0;
	if (shim->init_fd >= 0)
		close(shim->init_fd);
	shim->init_fd = -1;
	return no_such_process(error) ? -ESRCH : error;
}

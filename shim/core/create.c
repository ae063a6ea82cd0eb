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

static int run_runtime(struct shim *shim)
{
	struct command command = { .argv = (char *const *)shim->plan.create, .out_fd = OUT_WRITE_FD,
				   .err_fd = ERR_WRITE_FD, .in_fd = shim->streams.in_read_fd,
				   .limit_ms = shim->plan.create_ms, .answers = &shim->answers };
	int error = command_run(&command, shim->signal_fd, &shim->wait_status);

	return error ? error : shim->wait_status ? -ECHILD : 0;
}

/* Whether the runtime said so or not: an exec that has begun is one. 1 when there is such a child. */
static bool has_begun_exec(struct shim *shim)
{
	shim->named_pid = *shim->plan.exec ? begun_child(BEGINS_MS) : 0;
	return shim->named_pid > 0;
}

static int find_pid(struct shim *shim)
{
	if (!shim->named_pid)
		shim->named_pid = read_pid(shim->plan.pid_file);
	return shim->named_pid < 0 ? shim->named_pid : 0;
}

/* Our child by the kernel's own word. A zombie is one too: a container that was created and has already ended. */
static int check_child(struct shim *shim)
{
	siginfo_t info;

	return waitid(P_PID, (id_t)shim->named_pid, &info, WEXITED | WNOHANG | WNOWAIT) ? -errno : 0;
}

static int hold(struct shim *shim)
{
	struct proc_stat stat = { .started = 0 };
	int error, pid = shim->named_pid;

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

int create_container(struct shim *shim)
{
	static const struct step make[] = {
		{ "answers", answers_begin },
		{ "join", join_begin },
		{ "console", console_begin },
		{ "runtime", run_runtime },
	};
	static const struct step find[] = {
		{ "console", console_take },
		{ "pid file", find_pid },
		{ "not a child", check_child },
		{ "init", hold },
	};
	int error = shim_steps(shim, make, sizeof make / sizeof *make);

	join_end(shim);
	if (error && has_begun_exec(shim))
		error = shim->wait_status = 0;
	if (!error)
		error = shim_steps(shim, find, sizeof find / sizeof *find);
	console_end(shim);
	return error;
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

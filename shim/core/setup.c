/* Before anything exists that could be lost: the lock, the plan, and every descriptor the shim will ever need. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernel.h"
#include "shim.h"

/* A run is begun once. A keeper that stood still starts a shim late, when exitd has long started another, which may have
 * come to its end: an exec would run a second time. What has been signed can only be adopted. */
static bool is_signed(int fd)
{
	struct stat found;

	return fstat(fd, &found) || found.st_size > 0;
}

/* The run's lock: its holder is the run's one shim, and exitd gives a run up only while holding it. */
static int take_lock(struct shim *shim)
{
	int low_fd = open("lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (low_fd < 0)
		return -errno;
	/* Out of the slots: which of the last ones are taken, only the plan will tell. */
	shim->lock_fd = fcntl(low_fd, F_DUPFD_CLOEXEC, SLOTS_END);
	close(low_fd);
	if (shim->lock_fd < 0)
		return -errno;
	if (flock(shim->lock_fd, LOCK_EX | LOCK_NB))
		return -errno;
	return !shim->adopted && is_signed(shim->lock_fd) ? -EEXIST : 0;
}

static int read_plan(struct shim *shim)
{
	int fd = open("plan", O_RDONLY | O_CLOEXEC | O_NOFOLLOW), error;
	ssize_t got;

	if (fd < 0)
		return -errno;
	got = read(fd, shim->plan_text, sizeof shim->plan_text);
	error = got < 0 ? -errno : plan_parse(&shim->plan, shim->plan_text, (size_t)got);
	close(fd);
	shim->adopted |= !error && shim->plan.follow;
	return error;
}

/* Who holds the lock, for a daemon that comes later: pid and start time. */
static int sign_lock(struct shim *shim)
{
	struct proc_stat self;
	struct writer w;
	char text[128];
	int size, error = proc_stat_read(&self, getpid());

	if (error)
		return error;
	writer_open(&w, text, sizeof text, "exitd-lock", 1);
	writer_number(&w, "pid", (uint64_t)getpid());
	writer_number(&w, "started", self.started);
	writer_number(&w, "adopted", (uint64_t)shim->adopted);
	size = writer_close(&w);
	/* Over the old text, then cut: a replacement must find room on a full file system. */
	if (pwrite(shim->lock_fd, text, (size_t)size, 0) != size || ftruncate(shim->lock_fd, size))
		return errno ? -errno : -EIO;
	return 0;
}

static int dispositions(struct shim *shim)
{
	sigset_t wanted;

	/* The starter may have ignored SIGCHLD, and then waitid would have nothing to tell. */
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGCHLD);
	sigaddset(&wanted, REPORTED);
	if (sigprocmask(SIG_SETMASK, &wanted, NULL))
		return -errno;
	shim->signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	if (shim->signal_fd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
		return -errno;
	setsid();
	return 0;
}

static int open_all(struct shim *shim)
{
	/* O_RDWR: opens without a reader and never raises EPIPE; CLOEXEC: a child's copy would withhold the HUP. */
	shim->fifo_fd = open("exit_fifo", O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	shim->record_fd = open("exit.json", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (shim->fifo_fd < 0 || shim->record_fd < 0)
		return -errno;
	return 0;
}

/* A number at which nothing was placed must not be given to the next file opened: /dev/null takes its slot. */
static void fill_slot(int fd)
{
	int null_fd;

	if (fcntl(fd, F_GETFD) >= 0)
		return;
	null_fd = open("/dev/null", O_RDWR);
	if (null_fd >= 0 && null_fd != fd) {
		dup2(null_fd, fd);
		close(null_fd);
	}
}

/* The end of a pipe that was placed there, or -1; what else lies there is none of ours. */
static int pipe_slot(int fd, int mode)
{
	struct stat found;

	if (!fstat(fd, &found) && S_ISFIFO(found.st_mode) && (fcntl(fd, F_GETFL) & O_ACCMODE) == mode)
		return fcntl(fd, F_SETFD, FD_CLOEXEC) ? -1 : fd;
	close(fd);
	return -1;
}

static void stream_slots(struct shim *shim)
{
	struct streams *s = &shim->streams;

	for (int fd = OUT_FD; fd <= ERR_FD; fd++)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	s->source[0].fd = OUT_FD;
	s->source[1].fd = ERR_FD;
	s->in_read_fd = pipe_slot(IN_FD, O_RDONLY);
	s->in_fd = pipe_slot(IN_WRITE_FD, O_WRONLY);
	s->stage_read_fd = pipe_slot(STAGE_READ_FD, O_RDONLY);
	s->stage_write_fd = pipe_slot(STAGE_WRITE_FD, O_WRONLY);
}

/* The starter's own input and output are none of ours, nor is anything behind the slots. */
static int clear_slots(struct shim *shim)
{
	for (int fd = 0; fd < STATUS_FD; fd++)
		close(fd);
	close_from(SLOTS_END);
	for (int fd = 0; fd <= ERR_WRITE_FD; fd++)
		fill_slot(fd);
	for (int fd = STATUS_FD; fd <= ERR_WRITE_FD; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	stream_slots(shim);
	return 0;
}

/* The slots of namespaces, which the plan distinguishes from free ones. */
static int join_or_output(struct shim *shim)
{
	isulad_slots(shim);
	return join_slots(shim);
}

int setup_shim(struct shim *shim)
{
	static const struct step steps[] = {
		{ "slots", clear_slots },
		{ "lock", take_lock },
		{ "plan", read_plan },
		{ "join", join_or_output },
		{ "lock", sign_lock },
		{ "signals", dispositions },
		{ "open", open_all },
		{ "streams", streams_open },
		{ "control", control_begin },
		{ "attach", isulad_open },
	};
	int error = shim_steps(shim, steps, sizeof steps / sizeof *steps);

	boot_id_read(shim->boot_id);
	return error;
}

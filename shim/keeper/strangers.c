/* Runs that another keeper had, whose shims have registered here. Their inits are no children of this keeper when their
 * shims die: the host's init reaps them, and how they ended the kernel says to the holder of a pidfd (Linux 6.15). Where
 * it does not, nothing is written. */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../core/kernel.h"
#include "keeper.h"

enum { LOOKS_MAX = 64 };

static int watch(const struct keeper *k, int how, int pidfd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = pidfd };

	return epoll_ctl(k->strangers_fd, how, pidfd, &event) ? -errno : 0;
}

void strangers_forget(struct run *run)
{
	if (run->init_fd >= 0)
		close(run->init_fd);	/* which takes it out of the epoll set, too */
	run->init_fd = -1;
}

static bool is_watched(const struct run *run, int pid, uint64_t started)
{
	return run->init_fd >= 0 && run->init_pid == pid && run->init_started == started;
}

/* It may be known in a moment. Any other error: there is no such process, or this kernel never reports ends. */
static bool is_short(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -EIO || error == -EAGAIN ||
	       error == -ENOSPC;	/* epoll(7): max_user_watches */
}

/* From now on watch the init that the run is registered with. 0, also where there is nothing to watch; or -errno: not now. */
int strangers_watch(struct keeper *k, struct run *run, int pid, uint64_t started)
{
	struct proc_stat stat;
	int pidfd, error;

	if (!pid || is_watched(run, pid, started))
		return 0;
	if (k->strangers_fd < 0)
		return -EAGAIN;
	strangers_forget(run);
	pidfd = pidfd_open_raw(pid);
	if (pidfd < 0)
		return is_short(-errno) ? -errno : 0;
	/* After the pidfd, so that what is read is of the process that it holds, or of none. */
	error = proc_stat_read(&stat, pid);
	if (!error && stat.started != started)
		error = -ESRCH;
	if (!error)
		error = watch(k, EPOLL_CTL_ADD, pidfd, EPOLLIN);
	if (error) {
		close(pidfd);
		return is_short(error) ? error : 0;
	}
	run->init_fd = pidfd;
	run->has_begun = stat.began;
	run->zombie_status = -1;
	return 0;
}

static bool is_child(int pid)
{
	siginfo_t info;

	return pid && (!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || errno != ECHILD);
}

/* Whether this process reaps the run's init, if its shim does not: 1, 0, or -errno: not now. A shim that is this process's
 * child is not enough: it may be a replacement, whose init is another's child. */
static int reaps(const struct run *run)
{
	struct proc_stat stat;
	int error;

	if (is_child(run->init_pid))
		return 1;
	if (!is_child(run->shim_pid))
		return 0;
	error = proc_stat_read(&stat, run->init_pid);
	if (error)
		return is_short(error) ? error : 0;
	return stat.ppid == run->shim_pid;
}

/* After the program's exec all of them; later those whose end could not be written down. An earlier version's table has no
 * pidfds. */
static int watch_one(struct keeper *k, struct run *run)
{
	int error;

	if (run->init_fd >= 0) {
		error = watch(k, EPOLL_CTL_ADD, run->init_fd, EPOLLIN);
		return error == -EEXIST ? 0 : error;
	}
	if (!run->init_pid || run->outcome == JOURNALLED)
		return 0;
	error = reaps(run);
	if (error)
		return error < 0 ? error : 0;
	return strangers_watch(k, run, run->init_pid, run->init_started);
}

static int64_t soon(void)
{
	return now_ns(CLOCK_MONOTONIC) + AGAIN_MS * 1000000ll;
}

/* With the runs of a table that was loaded, and again as long as something is not watched that should be. */
void strangers_begin(struct keeper *k)
{
	int unwatched;

	if (k->strangers_fd < 0)
		k->strangers_fd = epoll_create1(EPOLL_CLOEXEC);
	unwatched = k->strangers_fd < 0;
	for (int i = 0; i < k->run_count && k->strangers_fd >= 0; i++)
		unwatched |= watch_one(k, &k->runs[i]) != 0;
	k->watch_at_ns = unwatched ? soon() : 0;
}

/* Each walk is some system calls for every run: not in each turn of the loop. */
bool strangers_due(const struct keeper *k)
{
	return k->watch_at_ns && now_ns(CLOCK_MONOTONIC) >= k->watch_at_ns;
}

static struct run *run_of(struct keeper *k, int pidfd)
{
	for (int i = 0; i < k->run_count; i++)
		if (k->runs[i].init_fd == pidfd)
			return &k->runs[i];
	return NULL;
}

/* It lies there for its parent to reap: the last moment at which it says whether it has executed a program, and how its
 * parent will hear that it ended. */
static void look_at_zombie(struct run *run)
{
	struct proc_stat stat;

	if (proc_stat_read(&stat, run->init_pid) || stat.started != run->init_started)
		return;
	run->has_begun = stat.began ? 1 : -1;
	if (stat.state == 'Z' && stat.is_shown)
		run->zombie_status = stat.exit_status;
}

/* has_begun: 1 it has, -1 it never had, 0 it had not when it was last seen. */
static int journal_status(struct keeper *k, struct run *run, int wait_status)
{
	struct exit_facts facts = {
		.signaled = WIFSIGNALED(wait_status),
		.value = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status),
		.core = WIFSIGNALED(wait_status) && WCOREDUMP(wait_status),
		.began = run->has_begun > 0 ? 1 : run->has_begun < 0 ? 0 : -1,
	};

	return journal_exit(k, run, &facts);
}

/* 1: there is something new in the journal. */
static int look_at(struct keeper *k, struct run *run)
{
	int wait_status, error = exitd_pidfd_exit_status(run->init_fd, &wait_status);

	if (error == -EAGAIN) {
		look_at_zombie(run);
		/* Readable until it is reaped, which is a hang-up: that is reported without being asked for. */
		watch(k, EPOLL_CTL_MOD, run->init_fd, 0);
		return 0;
	}
	if (error || run->outcome == JOURNALLED) {
		strangers_forget(run);
		return 0;
	}
	/* The zombie showed what its parent has heard (wait_task_zombie() in kernel/exit.c). The pidfd keeps the first thread's
	 * code, also where that left alone while another ended the whole process, and was the last of them to go; and of the core
	 * that another thread dumped it says nothing. */
	if (run->zombie_status >= 0)
		wait_status = run->zombie_status;
	if (journal_status(k, run, wait_status)) {
		/* It is tried again. Until then the pidfd would wake this program without end. */
		watch(k, EPOLL_CTL_DEL, run->init_fd, 0);
		k->watch_at_ns = soon();
		return 0;
	}
	strangers_forget(run);
	return 1;
}

/* Looks at the ends that the kernel reports. Returns how many are new in the journal. */
int strangers_look(struct keeper *k)
{
	struct epoll_event events[LOOKS_MAX];
	int count, news = 0;

	if (strangers_due(k))
		strangers_begin(k);
	count = epoll_wait(k->strangers_fd, events, LOOKS_MAX, 0);
	spare_take(k);	/* for the zombie's state, and the count of memory kills */
	for (int i = 0; i < count; i++) {
		struct run *run = run_of(k, events[i].data.fd);

		if (run)
			news += look_at(k, run);
	}
	spare_give(k);
	return news;
}

/* What cannot be read now may live. */
static bool lives(int pid, uint64_t started)
{
	struct proc_stat stat;
	int error = pid ? proc_stat_read(&stat, pid) : -ESRCH;

	return error ? !no_such_process(error) : stat.started == started;
}

/* Returns POLLIN: something is unread; POLLHUP: no process can write any more. */
static short state_of(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (fd < 0)
		return POLLHUP;
	return poll(&p, 1, 0) < 0 ? POLLIN : p.revents;
}

/* Something is unread, or a process can still write. Of the stage the keeper itself has the write end. */
static bool has_output(const struct run *run)
{
	short out = state_of(run->out_fd), err = state_of(run->err_fd), stage = state_of(run->stage_fds[0]);

	return (out | err | stage) & POLLIN || !(out & err & POLLHUP);
}

/* What is lost with this keeper, though none of its children needs it. A pidfd is held until the end that it reports is in
 * the journal. */
bool strangers_any(const struct keeper *k)
{
	for (int i = 0; i < k->run_count; i++) {
		const struct run *run = &k->runs[i];

		if (run->init_fd >= 0 || lives(run->init_pid, run->init_started) ||
		    lives(run->shim_pid, run->shim_started) || has_output(run))
			return true;
	}
	return false;
}

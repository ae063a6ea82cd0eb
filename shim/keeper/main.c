/* exitd-keeper --state DIR [--stay]: one per state directory. Without --stay it goes into the background once it
 * listens and ends by itself when there is nothing left to keep. SIGHUP: exec the program anew, with everything.
 *
 * Exit status: 0 done, 1 could not start, 3 bad call, 4 another keeper has this state directory. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../core/kernel.h"
#include "keeper.h"

#define IDLE_NS 10000000000

static int take_lock(struct keeper *k)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/keeper.lock", k->state);
	k->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (k->lock_fd < 0)
		return -errno;
	return flock(k->lock_fd, LOCK_EX | LOCK_NB) ? -errno : 0;
}

/* Only under the lock: a socket that is there now belongs to a keeper that is gone. */
static int listen_at(struct keeper *k)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if ((size_t)snprintf(address.sun_path, sizeof address.sun_path, "%s/keeper.sock", k->state) >=
	    sizeof address.sun_path)
		return -ENAMETOOLONG;
	unlink(address.sun_path);
	k->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (k->listen_fd < 0)
		return -errno;
	umask(0077);
	if (bind(k->listen_fd, (struct sockaddr *)&address, sizeof address) || listen(k->listen_fd, 4096))
		return -errno;
	return 0;
}

/* Again after an error: what they are for stays pending. 0 or -errno. */
static int signals(struct keeper *k)
{
	sigset_t wanted;

	/* The starter may have ignored SIGCHLD, and then there would be nothing to reap and nothing to know. */
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGCHLD);
	sigaddset(&wanted, SIGHUP);
	if (sigprocmask(SIG_SETMASK, &wanted, NULL) || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
		return -errno;
	k->signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	return k->signal_fd < 0 ? -errno : 0;
}

static void background(void)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC), pid = fork();

	if (pid)
		_exit(pid < 0);
	setsid();
	for (int fd = 0; fd < 3 && null_fd >= 0; fd++)
		dup2(null_fd, fd);
	/* The daemon's working directory may be asked to be unmounted one day. */
	if (chdir("/"))
		_exit(1);
}

/* The path this program was started from, for the exec of its successor. */
static void find_self(struct keeper *k)
{
	ssize_t got = readlink("/proc/self/exe", k->program, sizeof k->program - 1);
	static const char gone[] = " (deleted)";

	k->program[got > 0 ? got : 0] = 0;
	if (got > (ssize_t)sizeof gone && !strcmp(k->program + got - (sizeof gone - 1), gone))
		k->program[got - (ssize_t)(sizeof gone - 1)] = 0;
}

/* Two descriptors for each container: as many as the system lets us have. */
static void open_files(struct keeper *k)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return;
	k->open_files = files.rlim_cur;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

static int start(struct keeper *k)
{
	int error;

	close_from(3);
	open_files(k);
	error = take_lock(k);
	if (error)
		return error == -EWOULDBLOCK ? 4 : 1;
	if (listen_at(k))
		return 1;
	if (!k->stay)
		background();
	return signals(k) || journal_open(k) ? 1 : 0;
}

static bool has_entries(const struct keeper *k)
{
	for (int i = 0; i < k->run_count; i++)
		if (k->runs[i].outcome == JOURNALLED)
			return true;
	return false;
}

/* Milliseconds until it may end, or has to look again; 0 when it should end, -1 when there is something to keep whose end
 * wakes it. */
static int idle_left(struct keeper *k)
{
	int64_t left;

	if (k->stay || k->client_count || has_entries(k) || children_any()) {
		k->idle_since_ns = 0;
		return -1;
	}
	if (strangers_any(k)) {
		k->idle_since_ns = 0;
		return IDLE_NS / 1000000;
	}
	if (!k->idle_since_ns)
		k->idle_since_ns = now_ns(CLOCK_MONOTONIC);
	left = k->idle_since_ns + IDLE_NS - now_ns(CLOCK_MONOTONIC);
	return left > 0 ? (int)(left / 1000000) + 1 : 0;
}

static void on_signal(struct keeper *k)
{
	struct signalfd_siginfo info[8];
	ssize_t got;

	if (k->signal_fd < 0)
		signals(k);
	while ((got = read(k->signal_fd, info, sizeof info)) > 0)
		for (ssize_t i = 0; i < got / (ssize_t)sizeof *info; i++)
			if (info[i].ssi_signo == SIGHUP)
				k->upgrade = 1;
	serve_reap(k);
}

static void sweep(struct keeper *k)
{
	for (int i = 0; i < k->client_count;)
		if (k->clients[i].fd < 0)
			k->clients[i] = k->clients[--k->client_count];
		else
			i++;
}

static void turn(struct keeper *k, int wait_ms)
{
	struct pollfd p[3 + CLIENTS_MAX];
	int count = k->client_count, takes = count < CLIENTS_MAX && !k->accept_pauses;
	int deaf = k->signal_fd < 0;

	if ((deaf || k->unsettled || k->watch_at_ns || k->accept_pauses) && (wait_ms < 0 || wait_ms > AGAIN_MS))
		wait_ms = AGAIN_MS;
	k->accept_pauses = 0;
	p[0] = (struct pollfd){ .fd = k->signal_fd, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = takes ? k->listen_fd : -1, .events = POLLIN };
	p[2] = (struct pollfd){ .fd = k->strangers_fd, .events = POLLIN };
	for (int i = 0; i < count; i++)
		p[3 + i] = (struct pollfd){ .fd = k->clients[i].fd, .events = POLLIN | POLLRDHUP };
	if (poll(p, (nfds_t)count + 3, wait_ms) < 0) {
		if (errno != EINTR)	/* ENOMEM: without anything to look at it needs no memory */
			poll(NULL, 0, AGAIN_MS);
		return;
	}
	/* A client that has gone: whatever it still has queued is not wanted any more. Before the children, so that
	 * news are not written to it. */
	for (int i = 0; i < count; i++)
		if (p[3 + i].revents & (POLLHUP | POLLRDHUP | POLLERR))
			serve_drop(k, i);
	if (p[0].revents || deaf)
		on_signal(k);
	else if (k->unsettled)
		serve_reap(k);
	if (p[2].revents || strangers_due(k))
		serve_news(k, strangers_look(k));
	for (int i = 0; i < count; i++)
		if (p[3 + i].revents & POLLIN && k->clients[i].fd >= 0)
			serve_client(k, i);
	if (p[1].revents)
		serve_accept(k);
	sweep(k);
}

static int run(struct keeper *k)
{
	int wait_ms;

	serve_reap(k);
	while ((wait_ms = idle_left(k))) {
		turn(k, wait_ms);
		if (k->upgrade) {
			k->upgrade = 0;
			resume_exec(k);
		}
	}
	return 0;
}

static void clean_up(struct keeper *k)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/keeper.sock", k->state);
	unlink(path);
	unlink(k->journal_path);
}

static struct keeper the_keeper;

int main(int argc, char **argv)
{
	struct keeper *k = &the_keeper;
	int resume = -1, error;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--stay"))
			k->stay = 1;
		else if (!strcmp(argv[i], "--state") && i + 1 < argc)
			k->state = argv[++i];
		else if (!strcmp(argv[i], "--resume") && i + 1 < argc)
			resume = atoi(argv[++i]);
		else
			return 3;
	}
	if (!k->state || *k->state != '/' || strlen(k->state) > 64)
		return 3;
	find_self(k);
	boot_id_read(k->boot_id);
	k->signal_fd = k->strangers_fd = -1;
	error = resume < 0 ? start(k) : resume_load(k, resume) ? 1 : 0;
	if (error)
		return error;
	/* From an exec on what there is no room for now is made later: there are runs to lose. */
	if (k->signal_fd < 0)
		signals(k);
	strangers_begin(k);
	spare_give(k);
	run(k);
	clean_up(k);
	return 0;
}

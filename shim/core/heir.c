/* The keeper that knows this run, and the one that comes after it. Its end is seen by its pidfd; then its socket is knocked
 * at until there is a next one, ever more rarely and never at the same moment as other shims. That one gets init's name and
 * a copy of every descriptor that a replacement of this shim would need. Nothing here waits: the loop goes on meanwhile. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"
#include "shim.h"

enum {
	FIRST_REST_MS = 100,	/* before the first knock, on the average half of it */
	LONGEST_REST_MS = 10000,
	ANSWER_MS = 2000,	/* for an answer of the keeper */
};

static int64_t ms_from_now(int64_t ms)
{
	return now_ns(CLOCK_MONOTONIC) + ms * 1000000;
}

/* Shims are many, and their keeper's end wakes them all at once. */
static int64_t any_part_of(int64_t ms)
{
	uint64_t mixed = (uint64_t)now_ns(CLOCK_MONOTONIC) * 2862933555777941757u + (uint64_t)getpid() * 2654435761u;

	return ms / 2 + (int64_t)((mixed >> 33) % (uint64_t)(ms / 2 + 1));
}

static void hang_up(struct heir *h)
{
	if (h->line_fd >= 0)
		close(h->line_fd);
	h->line_fd = -1;
}

/* Knock again later. */
static void rest(struct heir *h)
{
	hang_up(h);
	h->rest_ms = h->rest_ms ? h->rest_ms * 2 : FIRST_REST_MS;
	if (h->rest_ms > LONGEST_REST_MS)
		h->rest_ms = LONGEST_REST_MS;
	h->due_ns = ms_from_now(any_part_of(h->rest_ms));
}

/* The pidfd of the keeper at the other end of this connection, which says that it is this pid. -1: it has hung up. */
static int pidfd_of_keeper(int line_fd, uint64_t pid)
{
	struct pollfd p = { .fd = line_fd, .events = POLLRDHUP };
	int pidfd = pid > 0 && pid <= INT32_MAX ? pidfd_open_raw((int)pid) : -1;

	/* Looked at afterwards: whoever has the connection open now had this pid when the pidfd was opened. */
	if (pidfd >= 0 && poll(&p, 1, 0) == 0)
		return pidfd;
	if (pidfd >= 0)
		close(pidfd);
	return -1;
}

/* The keeper at the other end of this connection has said that it knows the run. Its answer may name it. */
void heir_known(struct shim *shim, int line_fd, const char *answer, size_t size)
{
	struct heir *h = &shim->heir;
	uint64_t pid = 0;
	int pidfd;

	fields_number(answer, size, "pid", &pid);
	pidfd = pidfd_of_keeper(line_fd, pid);
	if (pidfd < 0)
		return;
	if (h->keeper_fd >= 0)
		close(h->keeper_fd);
	h->keeper_fd = pidfd;
	h->rest_ms = h->due_ns = 0;
	hang_up(h);
}

static int send_hello(int fd)
{
	struct writer w;
	char text[64];

	writer_open(&w, text, sizeof text, "exitd-hello", 1);
	return pass(fd, text, writer_close(&w), -1, MSG_DONTWAIT) > 0 ? 0 : -EIO;
}

static void knock(struct shim *shim)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct heir *h = &shim->heir;

	/* Without its directory no shim can follow this one, and a daemon takes the run for lost: it must stay unknown. */
	if (strlen(shim->plan.keeper) >= sizeof address.sun_path || (access("lock", F_OK) && errno == ENOENT))
		return heir_end(shim);
	strcpy(address.sun_path, shim->plan.keeper);
	h->line_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	h->greeted = 0;
	h->gave_input = shim->streams.in_fd >= 0;
	h->due_ns = ms_from_now(ANSWER_MS);
	if (h->line_fd < 0 || connect(h->line_fd, (struct sockaddr *)&address, sizeof address) ||
	    tell_register(shim, h->line_fd))
		rest(h);
}

/* Where it has not been done: before init is there, there is nothing to register. */
void heir_begin(struct shim *shim)
{
	struct heir *h = &shim->heir;

	if (!*shim->plan.keeper || shim->ended || h->keeper_fd >= 0 || h->due_ns)
		return;
	knock(shim);
}

void heir_end(struct shim *shim)
{
	struct heir *h = &shim->heir;

	hang_up(h);
	if (h->keeper_fd >= 0)
		close(h->keeper_fd);
	h->keeper_fd = -1;
	h->due_ns = 0;
}

/* The time it would be woken at, CLOCK_MONOTONIC; 0: by descriptors alone. */
int64_t heir_due_ns(const struct shim *shim)
{
	return shim->ended ? 0 : shim->heir.due_ns;
}

/* Once in each round: what is due. */
void heir_settle(struct shim *shim)
{
	struct heir *h = &shim->heir;

	if (shim->ended)
		return heir_end(shim);
	if (!h->due_ns || now_ns(CLOCK_MONOTONIC) < h->due_ns)
		return;
	if (h->line_fd >= 0)
		rest(h);	/* it does not answer */
	else
		knock(shim);
}

/* The keeper has ended. */
void heir_on_end(struct shim *shim)
{
	struct heir *h = &shim->heir;

	close(h->keeper_fd);
	h->keeper_fd = -1;
	h->rest_ms = 0;
	rest(h);
}

/* It is registered. A keeper of an earlier version does not say which process it is unless it is greeted. */
static void on_ok(struct shim *shim, const char *answer, size_t size)
{
	struct heir *h = &shim->heir;

	/* Closed since, and what was to let go of the keeper's copy may have come before that copy. */
	if (h->gave_input && shim->streams.in_fd < 0)
		tell_keeper_release(shim, IN_WRITE_FD);
	heir_known(shim, h->line_fd, answer, size);
	if (h->keeper_fd >= 0)
		return;
	h->greeted = 1;
	if (send_hello(h->line_fd))
		rest(h);
}

void heir_on_answer(struct shim *shim)
{
	struct heir *h = &shim->heir;
	char answer[1024];
	ssize_t got = recv(h->line_fd, answer, sizeof answer, MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got > 0 && !h->greeted && fields_check(answer, (size_t)got, "exitd-ok") > 0)
		return on_ok(shim, answer, (size_t)got);
	if (got > 0 && h->greeted && fields_check(answer, (size_t)got, "exitd-keeper") > 0)
		heir_known(shim, h->line_fd, answer, (size_t)got);
	/* Hung up, refused, or not understood: all may be otherwise in a while. */
	if (h->keeper_fd < 0)
		rest(h);
}

/* The keeper that knows this run, and the one that comes after it. Its end is seen by its pidfd; then its socket is knocked
 * at until there is a next one, ever more rarely and never at the same moment as other shims. That one gets init's name and
 * a copy of every descriptor that a replacement of this shim would need, and is asked to give up its copy of an input that is
 * closed. The first registration alone is waited for; nothing else here waits: the loop goes on meanwhile. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"
#include "shim.h"

enum {
	FIRST_REST_MS = 100,	/* before the first knock, on the average three quarters of it */
	SHORT_REST_MS = 1000,	/* the longest while the next keeper is to be expected */
	EXPECTED_MS = 30000,
	LONGEST_REST_MS = 10000,
	ANSWER_MS = 2000,	/* for an answer of the keeper */
	ASK_TRIES = 10,		/* before the loop begins */
	ASK_REST_MS = 100,
};

enum { REGISTERS, GREETS, RELEASES };	/* what has been asked over the line */

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
	int64_t longest_ms;

	hang_up(h);
	if (!h->rest_ms)
		h->since_ns = ms_from_now(0);
	longest_ms = ms_from_now(-EXPECTED_MS) < h->since_ns ? SHORT_REST_MS : LONGEST_REST_MS;
	h->rest_ms = h->rest_ms ? h->rest_ms * 2 : FIRST_REST_MS;
	if (h->rest_ms > longest_ms)
		h->rest_ms = longest_ms;
	h->due_ns = ms_from_now(any_part_of(h->rest_ms));
}

/* What was asked over the line is settled; there may be something else to ask. */
static void settled(struct heir *h)
{
	hang_up(h);
	h->rest_ms = 0;
	h->due_ns = h->owes ? ms_from_now(0) : 0;
}

/* The pidfd of the keeper at the other end of this connection, which says that it is this pid. -1: it has hung up. */
static int pidfd_of_keeper(int line_fd, uint64_t pid)
{
	struct pollfd p = { .fd = line_fd, .events = POLLRDHUP };
	int pidfd = pid > 0 && pid <= INT32_MAX ? pidfd_open_raw((int)pid) : -1;

	/* Looked at afterwards: the process that has the connection open now had this pid when the pidfd was opened. */
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
	settled(h);
}

static int send_hello(int fd)
{
	struct writer w;
	char text[64];

	writer_open(&w, text, sizeof text, "exitd-hello", 1);
	return message_send(fd, text, writer_close(&w), -1, MSG_DONTWAIT);
}

/* 0, or -errno: it takes no message now. */
static int ask(struct shim *shim)
{
	return shim->heir.asked == RELEASES ? request_release(shim, shim->heir.line_fd, IN_WRITE_FD)
					    : request_register_anew(shim, shim->heir.line_fd);
}

static void knock(struct shim *shim)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct heir *h = &shim->heir;

	h->asked = h->keeper_fd < 0 ? REGISTERS : RELEASES;
	/* Without its directory no shim can follow this one, and a daemon takes the run for lost: it must stay unknown. A keeper
	 * that knows the run has a copy of its input all the same, which must be given up. */
	if (strlen(shim->plan.keeper) >= sizeof address.sun_path ||
	    (h->asked == REGISTERS && access("lock", F_OK) && errno == ENOENT))
		return heir_end(shim);
	strcpy(address.sun_path, shim->plan.keeper);
	h->line_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	h->due_ns = ms_from_now(ANSWER_MS);
	if (h->line_fd < 0 || connect(h->line_fd, (struct sockaddr *)&address, sizeof address) || ask(shim))
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

/* Registers with the keeper that is there now: the one that was known knows nothing of the run. 0, or -EAGAIN: there is none. */
int heir_anew(struct shim *shim)
{
	struct heir *h = &shim->heir;

	if (!*shim->plan.keeper)
		return -EAGAIN;
	if (h->line_fd >= 0 && h->asked != RELEASES)
		return 0;
	heir_end(shim);
	h->rest_ms = 0;
	h->due_ns = ms_from_now(0);
	return 0;
}

/* The kernel has nothing left for it now, and may have in a moment; it says nothing about the keeper. */
static bool is_short(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOBUFS || error == -ETOOMANYREFS;
}

/* 1: the keeper said ok, 0: it did not, -1: it hung up, which it does when it makes way for its successor, or when it has no
 * descriptor; or the kernel could not pass the request on. */
static int ask_waiting(struct shim *shim, int fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char answer[256];
	int error;
	ssize_t got;

	if (strlen(shim->plan.keeper) >= sizeof address.sun_path)
		return 0;
	strcpy(address.sun_path, shim->plan.keeper);
	error = connect(fd, (struct sockaddr *)&address, sizeof address) ? -errno : request_register(shim, fd);
	if (error)
		return is_short(error) ? -1 : 0;
	if (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 1000) != 1)
		return 0;
	got = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
	if (got <= 0)
		return -1;
	if (fields_check(answer, (size_t)got, "exitd-ok") < 0)
		return 0;
	heir_known(shim, fd, answer, (size_t)got);
	return 1;
}

/* Registers the run with the keeper, before the loop begins: it waits. With the send timeout a stopped keeper costs a second
 * once, and that it will not know. 1 when it knows. */
int heir_first(struct shim *shim)
{
	struct timeval limit = { .tv_sec = 1 };
	int fd, answer = -1;

	for (int tries = 0; tries < ASK_TRIES && answer < 0 && *shim->plan.keeper; tries++) {
		if (tries)
			poll(NULL, 0, ASK_REST_MS);
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
		answer = ask_waiting(shim, fd);
		close(fd);
	}
	return answer > 0;
}

/* The input is closed. As long as the keeper has its write end the container waits for more. */
void heir_release(struct shim *shim)
{
	struct heir *h = &shim->heir;

	h->owes = 1;
	if (h->keeper_fd >= 0 && h->line_fd < 0)
		h->due_ns = ms_from_now(0);
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

static bool is_due(const struct heir *h)
{
	return h->due_ns && now_ns(CLOCK_MONOTONIC) >= h->due_ns;
}

/* Once in each round: what is due. */
void heir_settle(struct shim *shim)
{
	struct heir *h = &shim->heir;

	if (shim->ended)
		return heir_end(shim);
	if (!is_due(h))
		return;
	if (h->line_fd < 0)
		return knock(shim);
	/* The answer may have come while this process stood still. */
	heir_on_answer(shim);
	if (h->line_fd >= 0 && is_due(h))
		rest(h);
}

/* The keeper has ended, and its copies with it. */
void heir_on_end(struct shim *shim)
{
	struct heir *h = &shim->heir;

	close(h->keeper_fd);
	h->keeper_fd = -1;
	h->owes = 0;
	h->rest_ms = 0;
	rest(h);
}

/* It is registered. A keeper of an earlier version does not say which process it is unless it is greeted. */
static void on_registered(struct shim *shim, const char *answer, size_t size)
{
	struct heir *h = &shim->heir;

	heir_known(shim, h->line_fd, answer, size);
	if (h->line_fd < 0)
		return;
	h->asked = GREETS;
	h->due_ns = ms_from_now(ANSWER_MS);
	if (send_hello(h->line_fd))
		rest(h);
}

/* With either answer the keeper has no copy of the input: it refuses where it knows no such run, or slot. */
static void on_released(struct heir *h)
{
	h->owes = 0;
	settled(h);
}

static bool is_kind(const char *answer, ssize_t size, const char *kind)
{
	return size > 0 && fields_check(answer, (size_t)size, kind) > 0;
}

void heir_on_answer(struct shim *shim)
{
	struct heir *h = &shim->heir;
	char answer[1024];
	ssize_t got = recv(h->line_fd, answer, sizeof answer, MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (h->asked == REGISTERS && is_kind(answer, got, "exitd-ok"))
		return on_registered(shim, answer, (size_t)got);
	if (h->asked == RELEASES && (is_kind(answer, got, "exitd-ok") || is_kind(answer, got, "exitd-refused")))
		return on_released(h);
	if (h->asked == GREETS && is_kind(answer, got, "exitd-keeper"))
		heir_known(shim, h->line_fd, answer, (size_t)got);
	/* Hung up, refused, or not understood: all may be otherwise in a while. */
	if (h->line_fd >= 0)
		rest(h);
}

/* `delete` asks exitd how the container ended and leaves the rest to it: one ttrpc call, within a limit. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon.h"

#define SERVICE "exitd.shimv2.Relay"
#define METHOD "Cleanup"

enum { LIMIT_MS = 3000, REQUEST_ROOM = 8192 };

static int request(const struct words *w, const char *bundle, char *out, size_t room)
{
	char payload[REQUEST_ROOM - 256];
	struct writer p = { .data = payload, .size = sizeof payload };
	struct writer q = { .data = out + FRAME_HEAD, .size = room - FRAME_HEAD };

	proto_text(&p, 1, w->name_space, strlen(w->name_space));
	proto_text(&p, 2, w->id, strlen(w->id));
	proto_text(&p, 3, bundle, strlen(bundle));
	proto_text(&q, 1, SERVICE, strlen(SERVICE));
	proto_text(&q, 2, METHOD, strlen(METHOD));
	proto_text(&q, 3, payload, p.used);
	proto_number(&q, 4, LIMIT_MS * 1000000ull);
	frame_head(out, (uint32_t)q.used, 1, FRAME_REQUEST);
	return p.overflow || q.overflow ? -E2BIG : (int)q.used + FRAME_HEAD;
}

/* Waits for the descriptor: 0, or -ETIMEDOUT. */
static int await(int fd, short events, int64_t end_ms)
{
	struct pollfd p = { .fd = fd, .events = events };
	int64_t left_ms = end_ms - now_ns(CLOCK_MONOTONIC) / 1000000;

	return left_ms > 0 && (poll(&p, 1, (int)left_ms) > 0 || errno == EINTR) ? 0 : -ETIMEDOUT;
}

static int write_all(int fd, const char *data, size_t size, int64_t end_ms)
{
	for (size_t at = 0; at < size;) {
		ssize_t put = send(fd, data + at, size - at, MSG_NOSIGNAL);

		if (put < 0 && errno != EAGAIN)
			return -errno;
		at += put > 0 ? (size_t)put : 0;
		if (put < 0 && await(fd, POLLOUT, end_ms))
			return -ETIMEDOUT;
	}
	return 0;
}

/* The reply's payload into `reply`: its size, or -errno, also when exitd refused. */
static int read_reply(int fd, char *reply, size_t room, int64_t end_ms)
{
	struct reader r = { 0 };
	struct text payload = { "", 0 };
	char data[4096];
	int whole = 0, error = 0;

	while (!whole && !error) {
		ssize_t got = recv(fd, data, sizeof data, 0);

		if (got > 0)
			reader_feed(&r, data, (size_t)got, &whole);
		else if (got == 0 || errno != EAGAIN)
			error = -ECONNRESET;
		else
			error = await(fd, POLLIN, end_ms);
	}
	if (!error && (r.type != FRAME_RESPONSE || (r.length && (!r.data || response_code(r.data, r.length, &payload))) ||
		       payload.size > room))
		error = -EBADMSG;
	if (!error && payload.size)
		memcpy(reply, payload.at, payload.size);
	reader_next(&r);
	return error ? error : (int)payload.size;
}

int cleanup_ask(const struct words *w, const char *bundle, char *reply, size_t room)
{
	int64_t end_ms = now_ns(CLOCK_MONOTONIC) / 1000000 + LIMIT_MS;
	char data[REQUEST_ROOM];
	int fd = place_dial_exitd(w->state), size = request(w, bundle, data, sizeof data), result;

	if (fd < 0)
		return fd;
	result = size < 0 ? size : write_all(fd, data, (size_t)size, end_ms);
	if (!result)
		result = read_reply(fd, reply, room, end_ms);
	close(fd);
	return result;
}

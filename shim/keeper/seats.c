/* The descriptors of a shim: which goes to which seat, and copies of those that must outlive it. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "keeper.h"

#define STDIO_FDS 5	/* by position, as a daemon before the seats had names: status and both ends of two pipes */

/* Where the run's copy of what sits at `seat` is; NULL when none is ever kept. */
int *seats_kept(struct run *run, int seat)
{
	switch (seat) {
	case OUT_SEAT: return &run->out_fd;
	case ERR_SEAT: return &run->err_fd;
	case IN_SEAT: return &run->in_fd;
	case STAGE_READ_SEAT: return &run->stage_fds[0];
	case STAGE_WRITE_SEAT: return &run->stage_fds[1];
	default: return NULL;
	}
}

/* The number in a `seat` key, or -EINVAL. */
static int number_of(const char *text)
{
	int number = 0, digits = 0;

	for (; *text >= '0' && *text <= '9' && digits < 4; digits++)
		number = number * 10 + (*text++ - '0');
	return digits && !*text && number >= FIRST_SEAT && number < SEATS_END ? number : -EINVAL;
}

/* Fills `fds`, one for each seat from the first on, -1 where nobody sits: the n-th of the request's `seat` keys says
 * where its n-th descriptor goes; without such keys they sit in their order. 0 or -EINVAL. */
int seats_read(const char *text, size_t size, const int *given, int count, int *fds)
{
	const char *keys[FDS_MAX];
	int named = fields_list(text, size, "seat", keys, FDS_MAX);

	for (int i = 0; i < FDS_MAX; i++)
		fds[i] = -1;
	if (named < 0 || (named && named != count))
		return -EINVAL;
	if (!named && count != 1 && (count < STDIO_FDS || count > STDIO_FDS + JOIN_MAX))
		return -EINVAL;
	for (int i = 0; i < count; i++) {
		int seat = named ? number_of(keys[i]) : FIRST_SEAT + i;

		if (seat < 0 || fds[seat - FIRST_SEAT] >= 0)
			return -EINVAL;
		fds[seat - FIRST_SEAT] = given[i];
	}
	return fds[0] < 0 ? -EINVAL : 0;
}

/* Copies of a first shim's descriptors are kept; a replacement gets the kept ones, and but for its status socket
 * nothing of what came with the request. 0 or -EMFILE. */
int seats_settle(struct run *run, int adopt, int *fds)
{
	for (int i = 1; i < FDS_MAX; i++) {
		int *kept = seats_kept(run, FIRST_SEAT + i);

		if (adopt) {
			fds[i] = kept ? *kept : -1;
		} else if (kept && fds[i] >= 0) {
			*kept = fcntl(fds[i], F_DUPFD_CLOEXEC, SEATS_END);
			if (*kept < 0)
				return -EMFILE;
		}
	}
	return 0;
}

static void let_go(int *kept)
{
	if (*kept >= 0)
		close(*kept);
	*kept = -1;
}

/* Gives up the copies that the request's `seat` keys name. 0, or -EINVAL: none is named, or one that is never kept. */
int seats_release(struct run *run, const char *text, size_t size)
{
	const char *keys[FDS_MAX];
	int named = fields_list(text, size, "seat", keys, FDS_MAX);

	for (int i = 0; i < named; i++)
		if (!seats_kept(run, number_of(keys[i])))
			return -EINVAL;
	for (int i = 0; i < named; i++)
		let_go(seats_kept(run, number_of(keys[i])));
	return named > 0 ? 0 : -EINVAL;
}

/* Takes over what a shim gives of its own, in the place of what was kept: the n-th of `seats` says what its n-th
 * descriptor is. An input that it does not have any more is closed, and its write end is in the way. 0, or -EINVAL: nothing
 * is taken. */
int seats_take(struct run *run, const int *seats, int named, const int *given, int count)
{
	if (named != count)
		return -EINVAL;
	for (int i = 0; i < named; i++)
		if (!seats_kept(run, seats[i]))
			return -EINVAL;
	let_go(&run->in_fd);
	for (int i = 0; i < named; i++) {
		let_go(seats_kept(run, seats[i]));
		*seats_kept(run, seats[i]) = given[i];
	}
	return 0;
}

void seats_close(struct run *run)
{
	for (int seat = FIRST_SEAT; seat < SEATS_END; seat++)
		if (seats_kept(run, seat))
			let_go(seats_kept(run, seat));
}

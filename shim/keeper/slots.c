/* The descriptors of a shim: which goes to which slot, and copies of those that must outlive it. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "keeper.h"

#define STDIO_FDS 5	/* by position, as a daemon before the slots had names: status and both ends of two pipes */

/* Where the run's copy of what lies at `slot` is; NULL when none is ever kept. */
int *slots_kept(struct run *run, int slot)
{
	switch (slot) {
	case OUT_FD: return &run->out_fd;
	case ERR_FD: return &run->err_fd;
	case IN_WRITE_FD: return &run->in_fd;
	case STAGE_READ_FD: return &run->stage_fds[0];
	case STAGE_WRITE_FD: return &run->stage_fds[1];
	default: return NULL;
	}
}

/* The slot that a `seat` key names, or -EINVAL. */
static int number_of(const char *text)
{
	int number = slot_parse(text);

	return number >= STATUS_FD && number < SLOTS_END ? number : -EINVAL;
}

/* Fills `fds`, one for each slot from the first on, -1 for an empty one: the n-th of the request's `seat` keys says
 * where its n-th descriptor goes; without such keys they lie in their order. 0 or -EINVAL. */
int slots_read(const char *text, size_t size, const int *given, int count, int *fds)
{
	const char *keys[SLOT_COUNT];
	int named = fields_list(text, size, "seat", keys, SLOT_COUNT);

	for (int i = 0; i < SLOT_COUNT; i++)
		fds[i] = -1;
	if (named < 0 || (named && named != count))
		return -EINVAL;
	if (!named && count != 1 && (count < STDIO_FDS || count > STDIO_FDS + JOIN_MAX))
		return -EINVAL;
	for (int i = 0; i < count; i++) {
		int slot = named ? number_of(keys[i]) : STATUS_FD + i;

		if (slot < 0 || fds[slot - STATUS_FD] >= 0)
			return -EINVAL;
		fds[slot - STATUS_FD] = given[i];
	}
	return fds[0] < 0 ? -EINVAL : 0;
}

/* Copies of a shim's descriptors are kept. A replacement gets what is kept already, in the place of what came with the
 * request, and what was not: that is all that is left when the keeper that had it died with the shim. 0 or -EMFILE. */
int slots_settle(struct run *run, int adopt, int *fds)
{
	for (int i = 1; i < SLOT_COUNT; i++) {
		int *kept = slots_kept(run, STATUS_FD + i);

		if (adopt && (!kept || *kept >= 0)) {
			fds[i] = kept ? *kept : -1;
		} else if (kept && fds[i] >= 0) {
			*kept = fcntl(fds[i], F_DUPFD_CLOEXEC, SLOTS_END);
			if (*kept < 0)
				return -EMFILE;
		}
	}
	return 0;
}

/* Fills `slots` and `fds`, SLOT_COUNT each, with what exitd holds copies of, for the case that this keeper and the shim die at
 * once: all that is kept but the input's write end. As long as there is one of that, the container waits for more. Returns how
 * many there are. */
int slots_to_give(struct run *run, int *slots, int *fds)
{
	int count = 0;

	for (int slot = STATUS_FD; slot < SLOTS_END; slot++) {
		const int *kept = slot == IN_WRITE_FD ? NULL : slots_kept(run, slot);

		if (kept && *kept >= 0) {
			slots[count] = slot;
			fds[count++] = *kept;
		}
	}
	return count;
}

static void let_go(int *kept)
{
	if (*kept >= 0)
		close(*kept);
	*kept = -1;
}

/* Gives up the copies that the request's `seat` keys name. 0, or -EINVAL: none is named, or one that is never kept. */
int slots_release(struct run *run, const char *text, size_t size)
{
	const char *keys[SLOT_COUNT];
	int named = fields_list(text, size, "seat", keys, SLOT_COUNT);

	for (int i = 0; i < named; i++)
		if (!slots_kept(run, number_of(keys[i])))
			return -EINVAL;
	for (int i = 0; i < named; i++)
		let_go(slots_kept(run, number_of(keys[i])));
	return named > 0 ? 0 : -EINVAL;
}

/* Takes over what a shim gives of its own, in the place of what was kept: the n-th of `slots` says what its n-th
 * descriptor is. An input that it does not have any more is closed, and its write end is in the way. 0, or -EINVAL: nothing
 * is taken. */
int slots_take(struct run *run, const int *slots, int named, const int *given, int count)
{
	if (named != count)
		return -EINVAL;
	for (int i = 0; i < named; i++)
		if (!slots_kept(run, slots[i]))
			return -EINVAL;
	let_go(&run->in_fd);
	for (int i = 0; i < named; i++) {
		let_go(slots_kept(run, slots[i]));
		*slots_kept(run, slots[i]) = given[i];
	}
	return 0;
}

void slots_close(struct run *run)
{
	for (int slot = STATUS_FD; slot < SLOTS_END; slot++)
		if (slots_kept(run, slot))
			let_go(slots_kept(run, slot));
}

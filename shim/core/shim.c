/* What several parts of a shim do: one step of its beginning after the other, the note that init has ended, the report. */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

/* Does the steps in their order, up to the first that fails: 0, or its -errno, and `stage` is its name. */
int shim_steps(struct shim *shim, const struct step *steps, size_t count)
{
	int error = 0;

	for (size_t i = 0; i < count && !error; i++) {
		shim->stage = steps[i].stage;
		error = steps[i].run(shim);
	}
	return error;
}

/* Notes that init has ended. The drain limit runs as of now. */
void shim_ended(struct shim *shim)
{
	shim->ended = 1;
	shim->ended_ns = now_ns(CLOCK_MONOTONIC);
}

/* Writes the code to the fifo, in iSulad's wire format: one native C int. The fifo says now; the record says what. */
void shim_report(const struct shim *shim)
{
	while (write(shim->fifo_fd, &shim->code, sizeof shim->code) < 0 && errno == EINTR)
		;
}

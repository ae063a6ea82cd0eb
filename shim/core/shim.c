/* The two moments of a shim's life that several of its parts bring about: init has ended, and the exit is reported. */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

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

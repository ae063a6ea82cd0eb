/* exitd-shim ID [--adopt]: the parent of one container's init. Works in its run directory (cwd), does what the plan
 * there says, waits, and tells how init ended. Starts and ends with its container; keeps no other state.
 *
 * Exit status: 0 done, 1 create failed, 2 set-up failed, 3 bad call. What matters was said in the record before. */
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

/* After everybody knows the exit. exitd removes what this leaves behind, so the outcome is not looked at. */
static void remove_container(struct shim *shim)
{
	struct command command = { .argv = (char *const *)shim->plan.remove, .out_fd = -1, .err_fd = -1,
				   .limit_ms = shim->plan.remove_ms };
	int ignored;

	poll(NULL, 0, (int)shim->plan.rest_ms);
	command_run(&command, shim->signal_fd, &ignored);
	reap(shim);
}

static int first_life(struct shim *shim)
{
	const char *stage = "";
	int wait_status = 0, known = 0, error = create(shim, &stage, &wait_status);

	/* The keeper first: whoever finds `created` may rely on it that a witness remains should this one die. */
	if (!error)
		known = tell_keeper(shim), stage = "created", error = leave_word(shim);
	if (error) {
		tell_failed(shim, stage, error, wait_status);
		return 1;
	}
	tell_created(shim, known);
	close(OUT_WRITE_FD);
	close(ERR_WRITE_FD);
	pump(shim);
	remove_container(shim);
	return 0;
}

/* init is the keeper's child now, its end the keeper's to tell; what is left to do is its output. */
static int second_life(struct shim *shim)
{
	if (find_again(shim)) {
		shim->ended = 1;
		shim->ended_ns = now_ns(CLOCK_MONOTONIC);
	}
	tell_created(shim, 1);
	pump(shim);
	return 0;
}

int main(int argc, char **argv)
{
	struct shim shim = { .init_fd = -1, .log_fd = -1 };
	const char *stage = "";
	int error;

	if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "--adopt")))
		return 3;
	shim.adopted = argc == 3;
	error = setup(&shim, &stage);
	if (!error && strcmp(shim.plan.id, argv[1]))
		stage = "plan", error = -22;
	if (error) {
		tell_failed(&shim, stage, error, 0);
		return 2;
	}
	return shim.adopted ? second_life(&shim) : first_life(&shim);
}

/* exitd-shim ID [--adopt]: the parent of one container's init. Works in its run directory (cwd), does what the plan
 * there says, waits, and tells how init ended. Starts and ends with its container; keeps no other state.
 *
 * Exit status: 0 done, 1 nothing was made, 2 a command's time was up (isulad.c), 3 bad call. What matters was said in
 * the record before. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

/* The daemon removes what this leaves behind, so the outcome is not looked at. */
static void run(struct shim *shim, const char **argv)
{
	struct command command = { .argv = (char *const *)argv, .in_fd = -1, .out_fd = -1, .err_fd = -1,
				   .limit_ms = shim->plan.remove_ms };
	int ignored;

	command_run(&command, shim->signal_fd, &ignored);
	reap_children(shim);
}

/* The runtime's delete would take the processors from clients that hear of the end just now, and from the daemon that
 * tells them: the daemon says when that is done. Without it, rest_ms. */
static void wait_until_reported(struct shim *shim)
{
	int64_t until_ns = now_ns(CLOCK_MONOTONIC) + (int64_t)shim->plan.rest_ms * 1000000, left_ms;

	while (!shim->is_reported && (left_ms = (until_ns - now_ns(CLOCK_MONOTONIC) + 999999) / 1000000) > 0) {
		poll(&(struct pollfd){ .fd = shim->signal_fd, .events = POLLIN }, 1, (int)left_ms);
		shim->is_reported |= drain_signals(shim->signal_fd);
		reap_children(shim);
	}
}

static void remove_container(struct shim *shim)
{
	wait_until_reported(shim);
	isulad_action(shim);
	if (*shim->plan.kill) {
		run(shim, shim->plan.kill);
		reap_rest(shim);
	}
	if (*shim->plan.remove)
		run(shim, shim->plan.remove);
}

/* After the exit is reported; or, where the fifo's reader kills a shim that has written it, before that. Then
 * the output is drained when all writers are dead: what is said last must not be cut off. */
static void finish(struct shim *shim)
{
	loop_run(shim, !shim->plan.report_last);
	if (!shim->plan.report_last)
		close(shim->fifo_fd);	/* its last writer: the output has been read, as far as it will be */
	remove_container(shim);
	if (!shim->plan.report_last)
		return;
	shim_ended(shim);
	loop_run(shim, 1);
	shim_report(shim);
	isulad_report(shim);
}

/* Reports that nothing was made. Returns the exit status. */
static int fail(struct shim *shim, int error)
{
	status_failed(shim, error);
	isulad_failed(shim, error);
	return 1;
}

/* The keeper first: a reader of `created` may rely on it that a witness remains should this one die. The kernel's log is open
 * before any client can start init. */
static int introduce(struct shim *shim)
{
	kmsg_begin(&shim->kmsg, KMSG, shim->plan.memcg, shim->init_pid);
	shim->keeper_knows = heir_first(shim);
	return leave_word(shim);
}

static int first_life(struct shim *shim)
{
	static const struct step steps[] = {
		{ "logger", logger_begin },
		{ "create", create_container },	/* names steps of its own */
		{ "created", introduce },
	};
	int error = shim_steps(shim, steps, sizeof steps / sizeof *steps);

	/* A full disk does not end a command that runs: the waiting daemon gets its word, and the keeper knows. */
	if (error && shim->init_pid && *shim->plan.exec)
		error = 0;
	if (!error)
		error = isulad_begin(shim);
	if (error)
		return fail(shim, error);
	status_created(shim);
	answers_end(shim);
	memory_begin(&shim->memory, shim->plan.oom);
	close(OUT_WRITE_FD);
	close(ERR_WRITE_FD);
	if (shim->streams.in_read_fd >= 0)
		close(shim->streams.in_read_fd);
	finish(shim);
	return isulad_status(shim);
}

/* init is the keeper's child now, its end the keeper's to tell; what is left to do is its output. The same where init is
 * another's: its end is then reported over the control socket. */
static int second_life(struct shim *shim)
{
	int error;

	shim->stage = "init";
	error = shim->plan.follow ? 0 : find_again(shim);
	if (error == -ESRCH)
		shim_ended(shim);
	else if (error)	/* the daemon has another replacement begun */
		return fail(shim, error);
	shim->keeper_knows = 1;
	status_created(shim);
	logger_begin(shim);
	loop_run(shim, 1);
	return 0;
}

/* All that one shim knows. Zero it is no part of the file, and of its buffers only what is used takes memory. */
static struct shim the_shim;

int main(int argc, char **argv)
{
	struct shim *shim = &the_shim;
	int error;

	if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "--adopt")))
		return 3;
	shim->adopted = argc == 3;
	shim->init_fd = shim->answers.fd = shim->memory.fd = shim->kmsg.fd = -1;
	shim->memory.kills = -1;
	shim->heir.keeper_fd = shim->heir.line_fd = -1;
	shim->isulad = (struct isulad){ -1, -1, -1, -1, -1, 0 };
	error = setup_shim(shim);
	if (!error && strcmp(shim->plan.id, argv[1]))
		shim->stage = "plan", error = -EINVAL;
	if (error)
		return fail(shim, error);
	return shim->adopted ? second_life(shim) : first_life(shim);
}

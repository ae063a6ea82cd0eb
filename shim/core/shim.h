/* exitd-shim's one context and the steps of its life, in order. Nothing here decides; the plan has decided. */
#ifndef EXITD_SHIM_H
#define EXITD_SHIM_H

#include <stdint.h>
#include <sys/types.h>

#include "core.h"

/* Descriptors the keeper (or whoever starts a shim) places; absent ones are closed. */
enum {
	STATUS_FD = 3,		/* SOCK_SEQPACKET: created or failed, once */
	OUT_FD = 4,		/* read ends of the container's stdout and stderr */
	ERR_FD = 5,
	OUT_WRITE_FD = 6,	/* their write ends, for the runtime; not with --adopt */
	ERR_WRITE_FD = 7,
	JOIN_FD = 8,		/* the first of JOIN_MAX: namespaces, one for each join of the plan; not with --adopt */
	SEATS_END = JOIN_FD + JOIN_MAX,
};

struct shim {
	struct plan plan;
	int adopted;		/* a replacement: init is the keeper's child, only its output is ours */
	int fifo_fd;
	int record_fd;
	int lock_fd;
	int log_fd;
	int out_fd;		/* where the output comes from; -1 at its end */
	int err_fd;
	int signal_fd;
	int init_fd;		/* pidfd */
	int init_pid;
	int ended;		/* init is dead; if it was ours, its record is written and it is reaped */
	int unsafe;		/* the record could not be written: nothing more is reaped */
	int code;		/* what the fifo is told */
	uint64_t init_started;
	int64_t ended_ns;	/* CLOCK_MONOTONIC */
	uint64_t lost;		/* log bytes that could not be written */
	int torn;		/* the log ends within a line */
	char boot_id[40];
};

/* setup.c: every descriptor the shim will ever need is opened before there is anything to lose. 0 or -errno, and
 * `*stage` names the step that failed. */
int setup(struct shim *shim, const char **stage);

/* command.c: one runtime command, bounded. */
struct command {
	char *const *argv;
	int out_fd;		/* -1: /dev/null */
	int err_fd;
	uint64_t limit_ms;
};
int command_run(const struct command *command, int signal_fd, int *wait_status);

/* join.c: the namespaces that the container shares with others, there for as long as it takes to make it. */
int join_seats(struct shim *shim);
int join_begin(struct shim *shim);
void join_end(struct shim *shim);

/* create.c: make the container and find its init. 0 or -errno with `*stage`. */
int create(struct shim *shim, const char **stage, int *wait_status);
int leave_word(struct shim *shim);
int find_again(struct shim *shim);

/* reap.c: look, record, and only then reap. */
void reap(struct shim *shim);
void reap_rest(struct shim *shim);
void report(const struct shim *shim);

/* tell.c: the status socket and the keeper. Never blocks for long, never fails the container. */
void tell_created(struct shim *shim, int keeper_knows);
void tell_failed(struct shim *shim, const char *stage, int error, int wait_status);
int tell_keeper(struct shim *shim);

/* pump.c: output to the log, until there is none. */
void pump(struct shim *shim, int drain);

#endif

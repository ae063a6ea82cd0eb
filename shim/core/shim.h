/* exitd-shim's one context and the steps of its life, in order. Nothing here decides; the plan has decided. */
#ifndef EXITD_SHIM_H
#define EXITD_SHIM_H

#include <stdint.h>
#include <sys/types.h>

#include "core.h"
#include "streams.h"

/* In the run directory: others live in the container's cgroup, of whom none is to die with its init. */
#define SHARED_CGROUP "shared-cgroup"

#define KMSG "/dev/kmsg"

enum {
	ANSWERS_PATH_SIZE = 48,	/* /proc/PID/fd/N/NAME */
	PAGE_BYTES = 4096,
};

struct shim {
	struct plan plan;
	int adopted;		/* a replacement: init is the keeper's child, only its output is ours */
	int fifo_fd;
	int record_fd;
	int lock_fd;
	int signal_fd;
	struct answers {
		int fd;			/* -1: none */
		char pid_file[ANSWERS_PATH_SIZE];	/* as the shim names them */
		char runtime_log[ANSWERS_PATH_SIZE];
		char its_pid_file[ANSWERS_PATH_SIZE];	/* as the runtime does */
		char its_log[ANSWERS_PATH_SIZE];
	} answers;
	int init_fd;		/* pidfd */
	int init_pid;
	int ended;		/* init is dead; if it was ours, its record is written and it is reaped */
	int is_reported;	/* exitd has reported init's end to its clients */
	int unsafe;		/* the record could not be written: nothing more is reaped */
	int code;		/* what goes into the fifo */
	const char *stage;	/* the step that is being done: where it fails, `failed` names it */
	int wait_status;	/* of the runtime's create; 0: it has ended well, or not at all */
	int named_pid;		/* init's, by the runtime's word or the kernel's, until `init_fd` holds it */
	int keeper_knows;	/* it has said that it knows init */
	int accept_pauses;	/* the kernel has nothing left for one more connection */
	uint64_t init_started;
	int64_t ended_ns;	/* CLOCK_MONOTONIC */
	char boot_id[BOOT_ID_SIZE];
	char console_path[64];
	struct memory memory;
	struct kmsg kmsg;
	struct streams streams;
	struct heir {
		int keeper_fd;		/* pidfd of the keeper that knows the run; -1: none */
		int line_fd;		/* to one that has been asked something; -1: none */
		int asked;		/* what (heir.c) */
		int owes;		/* the input is closed, and a keeper may have its write end */
		int64_t due_ns;		/* CLOCK_MONOTONIC: ask again, or give up waiting; 0: neither */
		int64_t rest_ms;	/* the last rest between two tries; 0: none has failed */
		int64_t since_ns;	/* CLOCK_MONOTONIC of the first of them */
	} heir;
	struct isulad {			/* -1: none */
		int out_fd;		/* where a command's code goes, and why nothing was made */
		int err_fd;
		int attach_fd;
		int resize_fd;
		int limit_fd;		/* timerfd */
		int timed_out;
	} isulad;
	char plan_text[PLAN_MAX];	/* `plan` points into it */
	/* The last, and aligned to pages: without output they are given back to the kernel, and nothing else with them. */
	char in[CARRY_MAX + BATCH_MAX] __attribute__((aligned(PAGE_BYTES)));	/* a batch, behind room for what was carried over */
	char out[FRAMED_MAX] __attribute__((aligned(PAGE_BYTES)));		/* the same, framed for a log */
};

/* shim.c */
struct step {
	const char *stage;
	int (*run)(struct shim *shim);	/* 0 or -errno */
};
int shim_steps(struct shim *shim, const struct step *steps, size_t count);
void shim_ended(struct shim *shim);
void shim_report(const struct shim *shim);

/* setup.c: every descriptor the shim will ever need is opened before there is anything to lose. 0 or -errno. */
int setup_shim(struct shim *shim);

/* command.c: one runtime command, bounded. */
struct command {
	char *const *argv;
	int in_fd;		/* -1: /dev/null */
	int out_fd;		/* -1: /dev/null */
	int err_fd;
	uint64_t limit_ms;
	struct answers *answers;	/* NULL: none */
};
int command_run(const struct command *command, int signal_fd, int *wait_status);
void command_signals(void);
bool drain_signals(int signal_fd);

/* join.c: the namespaces that the container shares with others, there for as long as it takes to make it. */
int join_slots(struct shim *shim);
int join_begin(struct shim *shim);
void join_end(struct shim *shim);

/* answers.c: the runtime's pid file and log, where no full state directory is in their way. */
int answers_begin(struct shim *shim);
void answers_hand_over(struct answers *answers);
void answers_end(struct shim *shim);

/* create.c: make the container and find its init. 0 or -errno. */
int create_container(struct shim *shim);
int leave_word(struct shim *shim);
int find_again(struct shim *shim);

/* begun.c: what a runtime that did not come to its end has begun all the same. Its pid, or 0. */
int begun_child(int64_t limit_ms);

/* reap.c: look, record, and only then reap. */
void reap_children(struct shim *shim);
void reap_rest(struct shim *shim);

/* status.c */
void status_created(struct shim *shim);
void status_failed(struct shim *shim, int error);

/* request.c: messages to the keeper, over a connection of the caller's. 0 or -errno. */
int request_register(const struct shim *shim, int fd);
int request_register_anew(const struct shim *shim, int fd);
int request_release(const struct shim *shim, int fd, int slot);

/* heir.c: after a keeper's end the run is made known to the next one. */
int heir_first(struct shim *shim);
void heir_begin(struct shim *shim);
int heir_anew(struct shim *shim);
void heir_release(struct shim *shim);
void heir_known(struct shim *shim, int line_fd, const char *answer, size_t size);
void heir_settle(struct shim *shim);
int64_t heir_due_ns(const struct shim *shim);
void heir_on_end(struct shim *shim);
void heir_on_answer(struct shim *shim);
void heir_end(struct shim *shim);

/* console.c: the socket over which the runtime sends a tty's master. */
int console_begin(struct shim *shim);
int console_take(struct shim *shim);
void console_end(struct shim *shim);
void console_use(struct shim *shim, int master_fd);
void console_let_go(struct shim *shim);
int console_resize(int master_fd, uint64_t rows, uint64_t cols);

/* logger.c: a program that the output goes to. */
int logger_begin(struct shim *shim);
void logger_end(struct shim *shim, int limit_ms);

/* isulad.c: what iSulad's daemon wants besides. */
void isulad_slots(struct shim *shim);
int isulad_open(struct shim *shim);
int isulad_begin(struct shim *shim);
void isulad_on_limit(struct shim *shim);
void isulad_on_resize(struct shim *shim);
void isulad_attach(struct shim *shim, int index);
void isulad_settle(struct shim *shim);
void isulad_action(const struct shim *shim);
void isulad_report(const struct shim *shim);
void isulad_failed(const struct shim *shim, int error);
int isulad_status(const struct shim *shim);

/* loop.c: moves all streams, until there is nothing left to move. */
void loop_run(struct shim *shim, int drain);

#endif

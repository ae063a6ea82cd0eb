/* exitd-keeper: parent of the shims, second parent of every container, holder of a second descriptor of whatever their
 * input and output would be lost with. No policy: a table of runs, a journal, a socket. */
#ifndef EXITD_KEEPER_H
#define EXITD_KEEPER_H

#include <stdint.h>
#include <sys/socket.h>

#include "../core/core.h"

enum {
	RUNS_MAX = 65536,
	CLIENTS_MAX = 512,
	AGAIN_MS = 250,		/* until the next try of what the kernel had nothing left for */
};

enum outcome { WAITING = 0, JOURNALLED = 1, DOUBTFUL = 2 };	/* DOUBTFUL: this or another run has ended */

struct run {
	char id[ID_MAX];
	char exec[ID_MAX];
	char oom[OOM_PATH_MAX];
	uint64_t run;
	int shim_pid;		/* 0: gone */
	int init_pid;		/* 0: not registered */
	uint64_t shim_started;
	uint64_t init_started;	/* before there is an init: when the shim was gone, 0 while it is there; 1: it will not be known */
	int out_fd;
	int err_fd;
	int entry;		/* in the journal; reserved as long as the run is known */
	int outcome;
	int in_fd;		/* from here on what table version 1 did not have (resume.c) */
	int stage_fds[2];
	int init_fd;		/* from here on what version 2 did not have: a pidfd where init is a stranger's child, else -1 */
	int has_begun;		/* of such an init: 1 it has executed a program, -1 it never had, 0: it had not yet */
	int64_t ended_realtime_ns;	/* from here on what version 3 did not have: when its end was first to be written, 0: not yet */
	int64_t ended_boottime_ns;
	int zombie_status;	/* of a stranger's child: the wait status that its zombie showed, or -1 */
	int session;		/* from here on what version 4 did not have: its shim's, and its runtime commands'; 0: no shim yet */
};

struct client {
	int fd;
	int watcher;		/* said hello: wants to hear about new journal entries */
};

struct keeper {
	const char *state;	/* state directory */
	char program[4096];	/* for exec of itself */
	char instance[64];
	char journal_path[4096];
	char boot_id[BOOT_ID_SIZE];
	int stay;
	int lock_fd;
	int listen_fd;
	int journal_fd;
	int signal_fd;		/* -1: there was no room for one yet */
	int strangers_fd;	/* epoll: inits that are no children of this keeper; -1: likewise */
	struct run *runs;
	int run_count;
	int run_room;
	unsigned char entry_taken[RUNS_MAX + 1];
	int next_entry;		/* where the search for a free one begins */
	struct client clients[CLIENTS_MAX];
	int client_count;
	int upgrade;		/* asked for */
	int spare_fd;		/* given up for a moment when no descriptor is left: an exit must never be lost to that */
	uint64_t open_files;	/* the limit the starter set: for the shims, not for this program */
	int64_t idle_since_ns;
	int unsettled;		/* a zombie whose end could not be read or written down */
	int64_t watch_at_ns;	/* when a stranger's child that is not watched is tried again (CLOCK_MONOTONIC); 0: all are */
	int accept_pauses;	/* the kernel has nothing left for one more connection */
};

/* table.c */
struct run *table_find(struct keeper *k, const char *id, uint64_t run, const char *exec);
struct run *table_add(struct keeper *k, const char *id, uint64_t run, const char *exec);
void table_drop(struct keeper *k, struct run *run);

/* slots.c */
int *slots_kept(struct run *run, int slot);
int slots_read(const char *text, size_t size, const int *given, int count, int *fds);
int slots_settle(struct run *run, int adopt, int *fds);
int slots_to_give(struct run *run, int *slots, int *fds);
int slots_take(struct run *run, const int *slots, int named, const int *given, int count);
int slots_release(struct run *run, const char *text, size_t size);
void slots_close(struct run *run);

/* journal.c */
int journal_open(struct keeper *k);
int journal_reserve(struct keeper *k);
int journal_write(struct keeper *k, const struct run *run, const struct exit_facts *facts);
void journal_clear(struct keeper *k, int entry);

/* children.c */
void spare_take(struct keeper *k);
void spare_give(struct keeper *k);
int journal_exit(struct keeper *k, struct run *run, struct exit_facts *facts);
int has_shim(const struct run *run);
int children_reap(struct keeper *k);
bool children_any(void);

/* strangers.c */
void strangers_begin(struct keeper *k);
int strangers_watch(struct keeper *k, struct run *run, int pid, uint64_t started);
void strangers_forget(struct run *run);
bool strangers_due(const struct keeper *k);
int strangers_look(struct keeper *k);
bool strangers_any(const struct keeper *k);

/* spawn.c */
struct spawned { int pid; uint64_t started; int pidfd; };
int spawn_shim(struct keeper *k, struct run *run, const char *directory, const char *program, int adopt, int *fds,
	       struct spawned *out);

/* serve.c */
void serve_accept(struct keeper *k);
void serve_client(struct keeper *k, int index);
void serve_drop(struct keeper *k, int index);
void serve_news(struct keeper *k, int count);
void serve_reap(struct keeper *k);

/* resume.c: everything through an exec of the new program, and back. */
int resume_exec(struct keeper *k);
int resume_load(struct keeper *k, int fd);

#endif

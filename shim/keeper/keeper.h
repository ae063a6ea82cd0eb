/* exitd-keeper: parent of the shims, second parent of every container, holder of a second descriptor of their output.
 * No policy: a table of runs, a journal, a socket. */
#ifndef EXITD_KEEPER_H
#define EXITD_KEEPER_H

#include <stdint.h>
#include <sys/socket.h>

#include "../core/core.h"

enum {
	RUNS_MAX = 65536,
	CLIENTS_MAX = 512,
	STDIO_FDS = 5,		/* of a first shim: its status socket and both ends of two pipes */
	FDS_MAX = STDIO_FDS + JOIN_MAX,	/* most descriptors one request carries */
};

enum outcome { WAITING = 0, JOURNALLED = 1 };

struct run {
	char id[ID_MAX];
	char exec[ID_MAX];
	char oom[OOM_PATH_MAX];
	uint64_t run;
	int shim_pid;		/* 0: gone */
	int init_pid;		/* 0: not registered */
	uint64_t shim_started;
	uint64_t init_started;
	int out_fd;
	int err_fd;
	int slot;		/* in the journal; reserved as long as the run is known */
	int outcome;
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
	char boot_id[40];
	int stay;
	int lock_fd;
	int listen_fd;
	int journal_fd;
	int signal_fd;
	struct run *runs;
	int run_count;
	int run_room;
	unsigned char slot_taken[RUNS_MAX + 1];
	int next_slot;		/* where the search for a free one begins */
	struct client clients[CLIENTS_MAX];
	int client_count;
	int upgrade;		/* asked for */
	int spare_fd;		/* given up for a moment when no descriptor is left: an exit must never be lost to that */
	uint64_t open_files;	/* the limit the starter set: for the shims, not for this program */
	int64_t idle_since_ns;
};

/* table.c */
struct run *table_find(struct keeper *k, const char *id, uint64_t run, const char *exec);
struct run *table_add(struct keeper *k, const char *id, uint64_t run, const char *exec);
void table_drop(struct keeper *k, struct run *run);

/* journal.c */
int journal_open(struct keeper *k);
int journal_reserve(struct keeper *k);
int journal_write(struct keeper *k, const struct run *run, const struct exit_facts *facts);
void journal_clear(struct keeper *k, int slot);

/* children.c */
void spare_take(struct keeper *k);
void spare_give(struct keeper *k);
void children_reap(struct keeper *k);
int children_any(void);

/* spawn.c */
struct spawned { int pid; uint64_t started; int pidfd; };
int spawn_shim(struct keeper *k, struct run *run, const char *directory, const char *program, int adopt, int *fds,
	       struct spawned *out);

/* serve.c */
void serve_accept(struct keeper *k);
void serve_client(struct keeper *k, int index);
void serve_drop(struct keeper *k, int index);
void serve_news(struct keeper *k);

/* resume.c: everything through an exec of the new program, and back. */
int resume_exec(struct keeper *k);
int resume_load(struct keeper *k, int fd);

#endif

/* containerd-shim-exitd-v2: what one process of it has open, and who does what with it. */
#ifndef EXITD_RELAY_DAEMON_H
#define EXITD_RELAY_DAEMON_H

#include <sys/types.h>

#include "relay.h"

#define SOCKETS "/run/containerd/s"	/* containerd's own shims have theirs there, whatever its state directory */
#define PROGRAM "containerd-shim-exitd-v2"

enum {
	CONNECTIONS_MAX = 512,
	READ_BYTES = 16384,		/* so much of a connection is read at once */
	RETRY_MS = 100,
	FAREWELL_MS = 1000,		/* exitd reads a BYE, or does not */
	SOON_MS = 500,
	IDLE_MS = 30000,		/* without a connection: whether any task is left is asked then, and again */
	PATH_ROOM = 4096,
	NOTE_ROOM = MESSAGE_MAX + PATH_ROOM,	/* of exitd's note, and of a path that it names */
	BOOTSTRAP_ROOM = 256,		/* of a text in a BootstrapParams */
	SOCKET_ROOM = 108,		/* of a socket's path (unix(7)) */
};

/* The command line and the environment. */
struct words {
	const char *action;
	const char *name_space;
	const char *id;
	const char *address;		/* of containerd's own API: a part of the socket's name, no more */
	const char *bundle;
	const char *events;		/* TTRPC_ADDRESS */
	const char *state;		/* directory of exitd */
};

struct end {
	struct connection *of;		/* NULL: not a connection's */
	int fd;
	uint32_t events;		/* as epoll knows them; 0: not known there */
};

struct connection {
	struct connection *next;
	struct session session;
	struct end down;		/* containerd */
	struct end up;			/* exitd */
	uint64_t number;		/* 0: nothing was asked yet */
	int64_t tried_ms;
	int64_t farewell_ms;
};

struct relay {
	const struct words *words;
	char group[GROUP_MAX];
	char socket[SOCKET_ROOM];
	const char *log;
	char id[17];
	uint64_t started;
	ino_t inode;			/* of the socket's file: only this one is removed */
	int ready_fd;			/* `start` waits there */
	int epoll_fd;
	struct end listener;
	struct end signals;
	struct connection *first;
	int count;
	uint64_t numbers;
	struct cache cache;
	struct courier courier;
	struct end post;		/* the courier's way to containerd */
	struct witness witness;
	struct end inits;		/* epoll's, of the tasks' inits: what has ended there is ready */
	int64_t dial_ms;		/* when that is tried next */
	int64_t next_try_ms;		/* exitd was not there */
	int64_t next_accept_ms;		/* there was no descriptor left */
	int64_t idle_ms;		/* when to ask whether any task is left, unless a client connects */
	int has_deleted;		/* exitd has been left word of a task */
	int asked;			/* so often by itself whether it is needed */
	int awaited;			/* how many connections `start` has promised that did not come yet, */
	int64_t awaited_ms;		/* and until when they are believed in */
	int is_away;
	int64_t away_ms;		/* ... since */
	int is_silent;			/* exitd takes nothing in, as this relay or another has found */
	int is_leaving;
	/* For what is needed for a moment: all of it begins in one place, since each page of a stack that was used once
	 * stays, and a relay is to have few. */
	char scratch[READ_BYTES];
};

/* words.c */
int words_read(struct words *w, int argc, char **argv);

/* bootstrap.c */
void bootstrap_read(struct words *w);

/* place.c */
int place_find(const struct words *w, char *group, char *socket);
int place_lock(int limit_ms);
int place_dial(const char *path);
int place_dial_exitd(const char *state);
bool place_is_served(const char *socket, int is_promised);

/* start.c, delete.c, info.c */
int start_main(struct words *w, char *action);
int delete_main(const struct words *w);
int info_main(void);
int version_main(void);

/* cleanup.c: what `delete` asks exitd. fate.c: what it does without. */
int cleanup_ask(const struct words *w, const char *bundle, char *reply, size_t room);
int fate_leave_word(const struct words *w, const char *bundle, const char *socket);
void fate_settle(const char *bundle, struct seen *out);

/* bundle.c */
bool is_short(int error);
int bundle_read(const char *bundle, struct seen *out, char room[NOTE_ROOM], const char **record);
int bundle_state(const char *bundle, char room[NOTE_ROOM], const char **path);
int bundle_record(const char *record, int pid, uint64_t started, struct seen *out);

/* watch.c */
int watch_look(const struct task *t, char *word, size_t room);
void watch_read(struct relay *r, int64_t now_ms);
void watch_settle(struct relay *r, int64_t now_ms);
int64_t watch_due_ms(const struct relay *r);

/* daemon.c */
int daemon_run(struct relay *r);

/* connection.c */
void connection_accept(struct relay *r, int64_t now_ms);
void connection_own(struct relay *r, int64_t now_ms);
void connection_read(struct relay *r, struct connection *c, int64_t now_ms);
void connection_settle(struct relay *r, struct connection *c, int64_t now_ms);
bool connection_is_dead(const struct connection *c, int64_t now_ms);
void connection_free(struct relay *r, struct connection *c);
void end_watch(struct relay *r, struct end *end, uint32_t events);

/* link.c */
void link_open(struct relay *r, struct connection *c, int64_t now_ms);
void link_read(struct relay *r, struct connection *c);
void link_write(struct relay *r, struct connection *c, int64_t now_ms);
void link_close(struct connection *c);

/* silence.c */
void silence_settle(struct relay *r, struct connection *c, int64_t now_ms);
void silence_over(struct relay *r);
int64_t silence_due_ms(const struct connection *c, int64_t now_ms);

/* post.c */
void post_read(struct relay *r);
void post_settle(struct relay *r, int64_t now_ms);
int64_t post_due_ms(const struct relay *r);

/* log.c */
void relay_log(const struct relay *r, const char *level, const char *text);

#endif

/* The container's streams: where bytes come from, where they go, and the batch in which none is lost or doubled. */
#ifndef EXITD_STREAMS_H
#define EXITD_STREAMS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct shim;

enum {
	BATCH_MAX = 65536,	/* most output that is moved at once */
	FRAMED_MAX = 131072,	/* most that is written to a log at once */
	CARRY_MAX = 4,		/* room for a character whose rest has not come yet */
	CLIENTS_MAX = 20,	/* control connections */
	ATTACHED_MAX = 16,	/* those of them that are attached */
	GIVE_BACK_MS = 100,	/* without output, and the memory it took is given back */
};

/* A descriptor that takes a stream's bytes as they are, and what it would not take yet. */
struct sink {
	int fd;			/* -1: none */
	int drop;		/* what does not fit is dropped and counted; else the stream waits until it fits */
	char *ring;		/* made on need */
	size_t start;
	size_t used;
	uint64_t dropped;	/* bytes it did not get */
};

struct source {
	int fd;			/* -1: at its end, or none */
	const char *name;
	struct sink sink;	/* a client's fifo, or a logger */
	uint64_t bytes;
	char carry[CARRY_MAX];	/* of the json log: the begin of a character */
	size_t carried;
};

struct logfile {
	const char *path;	/* "" for none */
	size_t (*frame)(char *out, size_t out_size, const char *in, size_t in_size, size_t *eaten, const char *stamp,
			const char *stream);
	int carries;		/* frame() may leave the begin of a character */
	int fd;			/* -1: could not be opened, which is tried again */
	int torn;		/* ends within a line */
};

struct input {
	int fd;			/* a pipe's read end; -1: none */
	uint64_t bytes;
	uint64_t due;		/* bytes that were in it when the container's stdin was asked to be closed */
};

struct client {
	int fd;			/* -1: a free place */
	int attached;
	int by_paths;		/* of isulad.c: asks by a message of paths, once */
	struct input in;
	struct sink sink[2];	/* out, err */
};

struct streams {
	struct source source[2];
	struct logfile log[2];		/* CRI, json */
	struct client client[CLIENTS_MAX];
	int client_count;		/* those behind have never been there: every batch is offered to all */
	struct input in_from;		/* a client's fifo */
	int in_fd;			/* the container's stdin; -1: closed, or none */
	int in_read_fd;			/* its other end, until the runtime has it; -1: none */
	int in_full;			/* there was no room in it */
	int in_closing;
	int master_fd;			/* of its tty; -1: none */
	int slave_fd;			/* of the same, while init lives; -1: none */
	int console_fd;
	int listen_fd;
	int stage_read_fd;		/* -1: no stage, plain reads */
	int stage_write_fd;
	int scratch_fd[2];
	int null_fd;
	int progress_fd;
	int logger_fd;			/* pidfd */
	int begun;
	int dirty;			/* the buffers have been used beyond their first page */
	int64_t batch_ns;		/* CLOCK_REALTIME of the batch: done again, it has the same time */
	int64_t hold_until_ns;		/* CLOCK_MONOTONIC; the output is not read before */
	uint64_t in_bytes;
	uint64_t lost;			/* log bytes that could not be written */
	uint64_t dropped;		/* bytes that sinks did not get */
};

/* stage.c: one batch of output, so that a kill at any instruction neither loses nor doubles a byte of the log. */
void stage_setup(struct shim *shim);
ssize_t stage_fill(struct shim *shim, int which, const char **data);
void stage_intend(struct shim *shim, int which);
void stage_done(struct shim *shim, size_t size);
ssize_t stage_recover(struct shim *shim, int *which, const char **data);

/* logfile.c */
int logfile_open(struct logfile *log);
int logfile_reopen(struct logfile *log);
void logfile_cut(struct logfile *log, const uint64_t *identity);
void logfile_identify(const struct logfile *log, uint64_t *identity);
int logfile_make_room(struct shim *shim, struct logfile *log, const struct source *source, const char *data,
		      size_t size);
void logfile_put(struct shim *shim, struct logfile *log, struct source *source, const char *data, size_t size);

/* sink.c */
void sink_put(struct shim *shim, struct sink *sink, const char *data, size_t size);
void sink_flush(struct shim *shim, struct sink *sink);
bool sink_holds_up(const struct shim *shim, const struct sink *sink);
void sink_close(struct shim *shim, struct sink *sink);

/* stdin.c */
void stdin_move(struct shim *shim, struct input *in);
int stdin_close(struct shim *shim);
void stdin_settle(struct shim *shim);
void stdin_drop(struct input *in);
void stdin_end(struct shim *shim);

/* clients.c */
void clients_begin(struct streams *s);
int clients_add(struct streams *s, int fd, int by_paths);
void clients_drop(struct shim *shim, int index);
int clients_attached(const struct streams *s);
int clients_fifo(const char *path, int mode);

/* control.c: the socket in the run directory. */
int control_begin(struct shim *shim);
void control_accept(struct shim *shim, int listen_fd, int by_paths);
void control_serve(struct shim *shim, int index);
void control_end(struct shim *shim);

/* streams.c: the plan's sinks and sources. 0 or -errno. */
int streams_open(struct shim *shim);
void streams_begin(struct shim *shim);
int streams_move(struct shim *shim, int which);
void streams_end_source(struct shim *shim, struct source *source);
bool streams_wait(const struct shim *shim, int which);
bool streams_busy(const struct shim *shim);
bool streams_unread(const struct shim *shim);
void streams_close(struct shim *shim);
void streams_give_back(struct shim *shim);

#endif

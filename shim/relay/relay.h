/* The pure parts of containerd-shim-exitd-v2: what containerd and exitd wrote in, what each is to be sent out. No
 * descriptor and no clock is touched here; times are milliseconds that the caller brings. cffi reads this too. */
#ifndef EXITD_RELAY_H
#define EXITD_RELAY_H

#include <stddef.h>
#include <stdint.h>

#include "../core/core.h"

/* cffi: begin */
enum { UNKNOWN_STATUS = 255 };	/* where containerd demands a number and none is known */

enum {
	FRAME_HEAD = 10,		/* length, stream (big-endian), type, flags */
	FRAME_MAX = 4194304,		/* most bytes of data behind a head */
	FRAME_REQUEST = 1,
	FRAME_RESPONSE = 2,
	FRAME_HELLO = 0x80,		/* relay -> exitd: who this is, first of all */
	FRAME_AGAIN = 0x81,		/* ... the next request was sent before */
	FRAME_DONE = 0x82,		/* ... a reply marked KEEP has been given to containerd */
	FRAME_BYE = 0x83,		/* ... containerd's connection is closed */
	FRAME_SOON = 0x84,		/* `start` -> relay: containerd has this address now, and is going to connect */
	FRAME_EVENT = 0x85,		/* exitd -> relay: a number, and a request that containerd is to get once */
	FRAME_TOLD = 0x86,		/* relay -> exitd: that number, and containerd's response */
	FRAME_EXEC = 0x87,		/* exitd -> relay: an exec has begun: its process, and where its record will be */
	EXEC_MAX = 8192,		/* bytes of that; of a longer one only exitd knows the end */
	EVENT_HEAD = 8,			/* the number, big-endian */
	ANSWER_MAX = 256,		/* of containerd's refusals; of a longer one only the code is passed on */
	CONNECT_MS = 5000,		/* containerd takes the courier's connection by then ... */
	ANSWER_MS = 10000,		/* ... and answers by then */
	REPLY_KEEP = 0x80,		/* exitd -> relay: a DONE is wanted */
	REPLY_CACHEABLE = 0x40,		/* ... may be given again while exitd is away */
	REPLY_LEAVE = 0x20,		/* ... and after this one the relay ends */
	PENDING_MAX = 4096,		/* unanswered requests of one connection ... */
	PENDING_BYTES = 8388608,	/* ... and their bytes */
	UNREAD_MAX = 8388608,		/* bytes of replies that containerd has not read */
	FILL_BYTES = 65536,		/* so much is put before exitd at once */
	CACHE_MAX = 256,
	CACHE_BYTES = 65536,
	ENDS_MAX = 2,
	DONE_MAX = 64,
	SILENCE_MS = 1000,		/* after which a cached reply stands in for exitd's */
	AWAY_MS = 1000,			/* so long exitd may be away, or ... */
	OVERDUE_MS = 3000,		/* ... leave a Wait for what has ended unanswered, until the relay answers it */
	DELETE_MS = 8000,		/* likewise: containerd's CRI gives a Delete up after 10 s */
	SHUTDOWN_MS = 2500,		/* ... and containerd a Shutdown after 3 s */
	STATS_MS = 1500,		/* ... and Stats unanswered: a node's statistics must not hang */
	BRING_MS = 1000,		/* between attempts to bring an event of the relay's own */
	READ_MS = 1000,			/* for who reads the output, between init's end and the answer of a Wait */
	TASKS_MAX = 256,		/* with their execs, that the relay knows the ends of */
	GROUP_MAX = 256,		/* longest group, with its NUL */
	HASH_SIZE = 65,			/* sha256 in hex, with its NUL */
	CODE_INVALID_ARGUMENT = 3,
	CODE_NOT_FOUND = 5,
	CODE_FAILED_PRECONDITION = 9,
	CODE_RESOURCE_EXHAUSTED = 8,
	CODE_UNAVAILABLE = 14,
};

struct text {
	const char *at;
	size_t size;
};
/* text.c */
bool text_same(struct text a, struct text b);
/* The text, copied to `*at`, which is then behind it. */
struct text text_copied(char **at, struct text from);

/* buffer.c: a queue of bytes. */
struct buffer {
	char *data;
	size_t at;
	size_t end;
	size_t room;
};
int buffer_put(struct buffer *b, const char *data, size_t size);
void buffer_take(struct buffer *b, size_t size);
void buffer_free(struct buffer *b);

/* frames.c */
struct reader {
	uint32_t head_used;
	uint32_t length;
	uint32_t stream;
	uint32_t got;
	uint32_t room;
	uint8_t type;
	uint8_t flags;
	unsigned char head[10];
	char *data;			/* NULL with a length: there was no room for it, and it was skipped */
};
size_t reader_feed(struct reader *r, const char *in, size_t size, int *whole);
void reader_next(struct reader *r);
void frame_head(char *out, uint32_t length, uint32_t stream, int type);

/* proto.c: as much protobuf as stands in a request and a reply. */
struct field {
	uint32_t number;
	int is_text;
	uint64_t value;
	struct text text;
};
int proto_next(const char **at, const char *end, struct field *out);
void proto_number(struct writer *w, int number, uint64_t value);
void proto_text(struct writer *w, int number, const char *text, size_t size);
int response_code(const char *data, size_t size, struct text *payload);
int response_error(char *out, size_t size, int code, const char *text);

/* request.c */
enum {
	CALL_OTHER, CALL_WAIT, CALL_LOOK, CALL_TURN, CALL_CREATE, CALL_DELETE, CALL_KILL, CALL_STATS, CALL_SHUTDOWN,
	CALLS,
};
struct request {
	struct request *next;
	char *data;
	uint32_t length;
	uint32_t stream;
	uint32_t attempts;
	uint32_t ends;			/* of an exitd that had taken it in */
	int kind;			/* CALL_LOOK: what changes nothing and may be answered from the cache */
	int is_of_sandbox;		/* of the Sandbox service, which has messages of its own */
	int sent;			/* over the present connection to exitd */
	int answered;			/* from the cache; exitd's own reply is still to come, for the cache */
	int owed;			/* ... and if it was not sent, exitd has to hear of it all the same */
	int64_t arrived_ms;
	int64_t silent_ms;		/* exitd has been asked since */
	struct text method;		/* in data */
	struct text payload;
};
struct request *request_new(uint32_t stream, char *data, uint32_t length, int64_t now_ms);
void request_free(struct request *r);

/* pending.c: the unanswered requests of one connection in their order. */
struct pending {
	struct request *first;
	struct request *unsent;		/* it and all behind it have not been sent */
	struct request **last;
	size_t count;
	size_t bytes;
};
void pending_init(struct pending *p);
bool pending_takes(const struct pending *p, uint32_t length);
void pending_add(struct pending *p, struct request *r);
struct request *pending_find(const struct pending *p, uint32_t stream);
void pending_drop(struct pending *p, struct request *r);
void pending_drop_answered(struct pending *p);
void pending_clear(struct pending *p);

/* cache.c: replies by method and payload, for all connections of a relay. */
struct cached {
	struct cached *next;
	struct text method;
	struct text payload;
	struct text reply;
};
struct cache {
	struct cached *first;		/* the oldest */
	size_t count;
	size_t bytes;
};
void cache_drop(struct cache *c, struct text method, struct text payload);
void cache_put(struct cache *c, struct text method, struct text payload, struct text reply);
const struct cached *cache_find(const struct cache *c, struct text method, struct text payload);
void cache_forget(struct cache *c, struct text payload);

/* group.c, address.c, evidence.c */
int group_find(const char *json, size_t size, char *out, size_t room);
void sha256_hex(char *out, const char *data, size_t size);
int address_clean(char *path);
struct seen {
	int status;			/* code, or 128 + signal */
	int pid;
	uint64_t started;
	int64_t realtime_ns;
	int began;			/* as in struct exit_facts */
	int64_t oom_kills;		/* likewise */
};
int evidence_read(struct seen *out, const char *data, size_t size);
int evidence_of(struct seen *out, const char *data, size_t size, int pid, uint64_t started);

/* witness.c: the tasks made through a relay, and how their inits ended. */
enum task_stage {
	TASK_MADE,			/* exitd has made it */
	TASK_WATCHED,			/* its init is known, and lives */
	TASK_DEAD,			/* that has ended, and its record is to be read */
	TASK_ENDED,			/* ... has been read */
	TASK_UNKNOWN,			/* ... cannot be: only exitd knows */
	TASK_GONE,			/* deleted */
};
struct task {
	struct task *next;
	struct text id;			/* with a NUL behind it */
	struct text exec;		/* of an exec, which is kept like a task: its name; "": init's */
	struct text bundle;		/* with a NUL behind it */
	struct text record;		/* likewise: the path of an exec's */
	struct text in;
	struct text out;
	struct text err;
	int terminal;
	int is_sandbox;			/* a pod's pause container: containerd publishes its events itself */
	int stage;
	int status;			/* process.Status, by what exitd has done for containerd */
	int init_fd;			/* the watcher's; -1: none */
	char *state_path;		/* where exitd's word of its state stands; NULL: this exitd writes none of it */
	int64_t due_ms;			/* when the record, or the note of exitd's, is looked for */
	struct seen seen;
	uint64_t number;
	int taken;			/* NEWS_... that containerd has taken, through this relay */
	int brought;			/* ... of them what the relay brought by itself */
	int is_reported;		/* exitd was silent about this end, and the relay has reported it */
	int is_wanted;			/* a Delete waits for the relay: exitd is to be left word */
	int is_noted;			/* ... it has been */
	int is_deleted;			/* ... and the relay has answered */
};
struct witness {
	struct task *first;		/* the newest */
	const char *name_space;
	int relay_pid;
	size_t count;			/* without those that are gone */
	size_t ended;			/* so many at TASK_ENDED */
	uint64_t numbers;
	/* The watcher's look at one that is watched: see watch_look. NULL: all that is watched lives, of no state. */
	int (*look)(const struct task *t, char *word, size_t room);
};
void witness_made(struct witness *w, struct text create, int is_sandbox);
void witness_exec(struct witness *w, struct text begun);
struct task *witness_named(const struct witness *w, struct text payload);
void witness_gone(struct witness *w, struct text payload);
void witness_watched(struct witness *w, struct task *t, int pid, uint64_t started, int init_fd);
void witness_dead(struct witness *w, struct task *t, int64_t now_ms);
void witness_read(struct witness *w, struct task *t, const struct seen *seen);
void witness_unread(struct witness *w, struct task *t);
void witness_put_time(struct writer *w, int number, int64_t realtime_ns);
void witness_put_end(struct writer *w, const struct seen *seen, int status_at);
void witness_deleted(struct writer *w, const struct seen *seen);
int witness_answer(struct task *t, const struct request *r, char **out);
bool witness_allows(const struct witness *w, const struct request *r, struct text reply);
int witness_last(const struct witness *w, const struct request *r, int is_asked, char **out);
void witness_turned(struct witness *w, const struct request *r);

/* news.c: which events of a task containerd has, and which the relay brings. */
enum {
	NEWS_OTHER = 0,
	NEWS_CREATE = 1,
	NEWS_START = 2,
	NEWS_OOM = 4,
	NEWS_EXIT = 8,			/* of init */
	NEWS_DELETE = 16,
};
struct news {
	uint64_t task;			/* 0: none that is known here */
	int what;
	int is_ours;
};
bool news_is_old(struct witness *w, struct text request, struct news *note);
char *news_next(const struct witness *w, int is_away, struct news *note, size_t *size);
void news_taken(struct witness *w, const struct news *note);
void news_sweep(struct witness *w);

/* session.c: one connection of containerd and the one to exitd that belongs to it. */
struct note {
	struct note *next;
	uint64_t end;			/* of the reply, among all bytes ever put before containerd */
	uint32_t stream;
	int flags;
};
struct session {
	struct cache *cache;
	struct courier *courier;	/* NULL: events are passed over */
	struct witness *witness;	/* NULL: exitd alone knows of ends */
	struct reader from_containerd;
	struct reader from_exitd;
	struct buffer to_containerd;
	struct buffer to_exitd;
	struct pending pending;
	struct note *given;		/* replies whose end matters, in their order */
	uint32_t done[64];		/* the last of them that containerd has been given, as a ring */
	size_t done_count;
	uint64_t put;			/* bytes ever put before containerd */
	uint64_t taken;			/* of them, how many the socket took */
	uint64_t event;			/* handed over here, and exitd waits to hear of it; 0: none */
	int64_t look_ms;		/* when the silence is to be looked at; 0: nothing to look at */
	int64_t away_ms;		/* exitd has been away since, as session_witness has seen; 0: it has not */
	int64_t overdue_ms;		/* when an answer of exitd's is overdue that the relay can give; 0: none is */
	int is_up;
	int is_used;			/* a request came */
	int promised;			/* connections that are to come, less the one that has; until the relay looks */
	int is_over;			/* containerd is gone */
	int is_broken;			/* containerd does not read, or there is no memory: to be closed */
	int is_leaving;			/* the reply that ends the relay has been given, or there was no client to give it to */
};
void session_init(struct session *s, struct cache *cache);
void session_free(struct session *s);
void session_ask(struct session *s, const char *data, size_t size, int64_t now_ms);
void session_answer(struct session *s, const char *data, size_t size);
void session_up(struct session *s, const char *hello, size_t size, int64_t now_ms);
void session_unheard(struct session *s);
void session_down(struct session *s);
void session_fill(struct session *s, int64_t now_ms);
void session_look(struct session *s, int64_t now_ms);
void session_witness(struct session *s, int64_t now_ms);
int64_t session_owes(const struct session *s);
void session_silent(struct session *s);
void session_given(struct session *s, size_t size);
void session_over(struct session *s);
void session_own(struct session *s, int64_t now_ms);
bool session_stays(const struct session *s, int *is_leaving);

/* courier.c: what is brought to containerd, for all connections of a relay. */
struct courier {
	struct witness *witness;	/* NULL: there are only exitd's events */
	struct news news;		/* what is on its way, for the witness */
	int64_t bring_ms;		/* when the next event of the relay's own may be tried; 0: at once */
	uint64_t number;		/* on its way; 0: nothing is; UINT64_MAX: one of the relay's own */
	uint64_t taken;			/* the last that containerd has taken */
	uint64_t over;			/* the last that was on its way, with its answer */
	char answer[256];
	size_t answer_size;
	struct buffer to_containerd;
	struct reader from_containerd;
	uint32_t stream;		/* the next one's, and one more */
	int is_up;
	int64_t due_ms;			/* when it is given up; 0: that is to be reckoned yet */
};
void courier_offer(struct courier *c, struct session *s, const struct reader *in);
void courier_report(const struct courier *c, struct session *s);
void courier_bring(struct courier *c, int is_away, int64_t now_ms);
bool courier_wants(const struct courier *c);
void courier_up(struct courier *c);
void courier_down(struct courier *c);
bool courier_hear(struct courier *c, const char *data, size_t size);
bool courier_look(struct courier *c, int64_t now_ms);
/* cffi: end */

#endif

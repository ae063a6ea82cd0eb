/* The pure parts of exitd's C: bytes in, values out. The same header is what cffi reads.
 *
 * What a function returns, in core/, keeper/ and relay/: a predicate a bool; what can fail 0 or -errno; a count, a size or a
 * descriptor 0 or more, or -errno. A number that says anything else has its meaning in the comment above the function. Memory
 * is the caller's, and descriptors are closed by an exec. */
#ifndef EXITD_CORE_H
#define EXITD_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>

/* cffi: begin */
enum {
	ID_MAX = 128,		/* longest container or exec id, in bytes with its NUL */
	ARGV_MAX = 72,		/* longest runtime command, with its NULL */
	PLAN_MAX = 32768,	/* longest plan, in bytes */
	MESSAGE_MAX = 8192,	/* longest message between daemon, keeper and shim, in bytes */
	RECORD_SIZE = 4096,	/* exit.json */
	ENTRY_SIZE = 1024,	/* one entry of the keeper's journal: the same text, in less room */
	STAMP_SIZE = 32,	/* a CRI time stamp with its NUL */
	OOM_PATH_MAX = 320,	/* longest path of an OOM counter that the keeper remembers, with its NUL */
	JOIN_MAX = 4,		/* most namespaces that one container joins */
	CGROUPS_MAX = 24,	/* most hierarchies that a container has a cgroup in */
	BUFFER_MIN = 65536,	/* smallest buffer of a descriptor: one batch of output must fit */
	REPORTED = 23,		/* SIGURG, which a shim of an older version ignores: clients have heard of the end */
	NEVER_BEGAN = -1,	/* through the fifo, in the place of a number: the program was never executed */
};

/* Where exitd-shim finds its descriptors. The keeper, or another starter of a shim, places them there, and closes what is
 * absent. Messages name a slot by its number, under the key `seat`. The numbers stay: a keeper, a shim and a daemon of different
 * versions meet. */
enum slot {
	STATUS_FD = 3,		/* SOCK_SEQPACKET: created or failed, once; the keeper keeps no copy */
	OUT_FD = 4,		/* read ends of the container's stdout and stderr; with --adopt a tty's master is at the first */
	ERR_FD = 5,
	OUT_WRITE_FD = 6,	/* their write ends, for the runtime; not with --adopt */
	ERR_WRITE_FD = 7,
	JOIN_FD = 8,		/* the first of JOIN_MAX: namespaces, one for each join of the plan; not with --adopt */
	IN_FD = 12,		/* read end of the container's stdin, for the runtime; not with --adopt */
	IN_WRITE_FD = 13,	/* its write end */
	STAGE_READ_FD = 14,	/* a pipe that holds the output which is on its way to the log */
	STAGE_WRITE_FD = 15,
	SLOTS_END = 16,
	SLOT_COUNT = 13,	/* from STATUS_FD on; most descriptors of one request */
};

/* Fields: "<kind> <version>" NUL, then "key=value" NUL ..., then "end" NUL. One grammar for everything two processes
 * share; values are any bytes but NUL; unknown keys are for newer readers. */
int fields_check(const char *data, size_t size, const char *kind);
const char *fields_get(const char *data, size_t size, const char *key);
int fields_list(const char *data, size_t size, const char *key, const char **out, int max);
int fields_number(const char *data, size_t size, const char *key, uint64_t *out);

struct writer {
	char *data;
	size_t size;
	size_t used;
	int overflow;
};
void writer_open(struct writer *w, char *data, size_t size, const char *kind, int version);
void writer_text(struct writer *w, const char *key, const char *value);
void writer_number(struct writer *w, const char *key, uint64_t value);
int writer_close(struct writer *w);

struct plan {
	const char *id;
	const char *exec;		/* "" for the container's init */
	uint64_t run;
	const char *pid_file;
	const char *runtime_log;
	const char *log;		/* container log, "" for none */
	const char *oom;		/* cgroup file with an oom_kill line, "" for none */
	const char *memcg;		/* the cgroup as the kernel's log names it, when that is to be read; else "" */
	const char *keeper;		/* keeper's socket, "" for none */
	const char *join[JOIN_MAX];		/* links that lead to the namespaces at the slots while `create` runs */
	int join_count;
	const char *cgroup[CGROUPS_MAX];		/* where what is left dies when init has ended; none: the kernel sees to that */
	int cgroup_count;
	const char *create[ARGV_MAX];
	const char *kill[ARGV_MAX];		/* for what init left behind, before remove; may be empty */
	const char *remove[ARGV_MAX];
	uint64_t create_ms;
	uint64_t remove_ms;
	uint64_t drain_ms;
	uint64_t rest_ms;		/* between the report and remove, at most: who waits hears of it just now */
	uint64_t report_last;		/* 1: the fifo is written when nothing is left to do, not when init ends */
	uint64_t tty;			/* 1: the output comes from a terminal's master, and the input goes there */
	uint64_t rows;			/* its first size, 0 for none */
	uint64_t cols;
	const char *json_log;		/* container log as docker's json-file has it, "" for none */
	uint64_t log_bytes;		/* a log that would grow beyond is rotated; 0: never */
	uint64_t log_files;		/* how many are kept then, the current one included */
	const char *sink_out;		/* a client's fifos, "" for none */
	const char *sink_err;
	const char *in_from;
	const char *logger[ARGV_MAX];		/* a program that gets the output at its descriptors 3 and 4; may be empty */
	const char *logger_env[ARGV_MAX];
	const char *log_mode;		/* blocking | non-blocking: may a full buffer stop the output */
	uint64_t buffer;		/* bytes, of each descriptor that output is written to */
	uint64_t hold_ms;		/* the output waits for the first attach, at most this long */
	uint64_t isulad;		/* 1: what isulad.c does */
	const char *resize;		/* there: a fifo that a terminal's sizes come from, "" for none */
	uint64_t limit_ms;		/* there: of a command's life, 0 for none */
	uint64_t handled;		/* 1: the runtime runs the program itself, and init never executes it */
	uint64_t follow;		/* 1: another's container: nothing is made, its streams are moved until it is said
					 * to have ended */
};
int plan_parse(struct plan *plan, const char *data, size_t size);

struct exit_facts {
	const char *id;
	const char *exec;
	const char *boot_id;
	const char *witness;		/* shim | keeper */
	uint64_t run;
	int pid;
	uint64_t started;		/* clock ticks since boot */
	int signaled;			/* 1: value is a signal, 0: value is an exit code */
	int value;
	int core;
	int began;			/* 1: it had executed a program, 0: it never had, -1: not known */
	int64_t realtime_ns;
	int64_t boottime_ns;
	int64_t oom_kills;		/* -1: not known */
	int64_t user_us;
	int64_t system_us;
	int64_t max_rss_kb;
};
bool record_takes(const char *id);
int record_format(char *out, size_t size, const struct exit_facts *facts);
uint32_t record_crc(const char *data, size_t size);

size_t crilog_stamp(char *out, int64_t realtime_ns);
size_t crilog_frame(char *out, size_t out_size, const char *in, size_t in_size, size_t *eaten, const char *stamp,
		    const char *stream);

size_t jsonlog_frame(char *out, size_t out_size, const char *in, size_t in_size, size_t *eaten, const char *stamp,
		     const char *stream);

struct proc_stat {
	char state;
	int ppid;
	uint64_t started;
	int exit_status;		/* wait status, field 52; 0 for a reader who may not know it */
	int is_shown;			/* of a zombie, from Linux 5.16 on: this reader may know it */
	char name[16];
	int session;
	int exiting;			/* in the kernel's exit path, or dead */
	int began;			/* it has executed a program since it was forked */
};
int proc_stat_parse(struct proc_stat *out, const char *data, size_t size);
int proc_stat_read(struct proc_stat *out, int pid);
int pid_parse(const char *data, size_t size);
int64_t oom_parse(const char *data, size_t size);
int cgroup_end(const char *const *paths, int count, int spared_pid, int limit_ms);

struct memory {
	int fd;				/* the counter, held open; -1: nothing to watch */
	int64_t kills;			/* when it was last read; -1: never */
};
void memory_begin(struct memory *memory, const char *path);
void memory_look(struct memory *memory);
void memory_end(struct memory *memory);
int64_t memory_last(const struct memory *memory, const char *path);

struct kmsg {
	int fd;				/* the log, held open; -1: it is not read */
	const char *cgroup;
	int pid;			/* init's */
	int chosen;			/* the last victim is 1: ours, 0: of others; -1: none was named */
	int64_t kills;
};
void kmsg_begin(struct kmsg *k, const char *path, const char *cgroup, int pid);
int kmsg_take(struct kmsg *k, const char *record, size_t size);
int64_t kmsg_look(struct kmsg *k);
void kmsg_end(struct kmsg *k);

struct registration {
	const char *id;
	const char *exec;		/* "" for the container's init */
	const char *oom;		/* its OOM counter, "" for none */
	uint64_t run;
	int pid;			/* init's; 0: another's container, whose init only its own shim knows */
	uint64_t started;
	int shim_pid;			/* who registers; 0: a shim of an earlier version */
	uint64_t shim_started;
	int slots[SLOT_COUNT];		/* what the descriptors of the message are, in their order */
	int slot_count;
};
int registration_write(char *out, size_t size, const struct registration *r);
int registration_read(struct registration *r, const char *data, size_t size);

/* pidfd.c: 0 or -errno. */
int exitd_pidfd_exit_status(int pidfd, int *wait_status);

/* native.c, in the extension only: kernel calls that Python's standard library lacks. 0 or -errno. */
int exitd_mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data);
int exitd_unmount(const char *target, int flags);
int exitd_set_subreaper(int on);
int64_t exitd_file_system(int fd);
int exitd_bind_network(const char *path);
int exitd_user_namespace(uint32_t first, uint32_t count, int *network_fd);
int exitd_mapped_tree(const char *path, int user_fd);

/* blockwrite.c, in the extension only. */
struct block_writer;
int block_writer_open(struct block_writer **made, int fd, int event_fd, size_t most_bytes);
void block_write(struct block_writer *w, const char *data, size_t size, int64_t offset);
int64_t block_written(const struct block_writer *w, int64_t *took_ns);
void block_writer_close(struct block_writer *w);
/* cffi: end */

_Static_assert(IN_FD == JOIN_FD + JOIN_MAX && SLOT_COUNT == SLOTS_END - STATUS_FD, "the slots lie side by side");

enum {
	TTY_SIDE_MAX = 65535,	/* most rows or columns of a terminal, ioctl_tty(2) */
	BOOT_ID_SIZE = 37,	/* a UUID with its NUL */
	PASSED_MAX = 8,		/* most descriptors of one message that is sent */
};

int64_t oom_read(const char *path);
void boot_id_read(char out[BOOT_ID_SIZE]);
int64_t now_ns(int clock);

/* wait.c */
bool wait_look(siginfo_t *info, struct rusage *usage);
void wait_facts(struct exit_facts *facts, const siginfo_t *info, const struct rusage *usage);

/* registration.c */
int slot_parse(const char *text);

/* message.c */
struct passed {			/* the descriptors that came with a message */
	int fds[SLOT_COUNT];
	int count;
	int error;		/* -EMSGSIZE: text or descriptors were cut off; -EMFILE: there was no descriptor left for them */
};
int message_listen(const char *path, int type, int backlog);
int message_send(int to, const char *text, int size, int fd, int flags);
int message_send_all(int to, const char *text, int size, const int *fds, int count, int flags);
ssize_t message_receive(int from, char *text, size_t size, int most_fds, int lowest_fd, struct passed *out);
void message_close(struct passed *passed);

#endif

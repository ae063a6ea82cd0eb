/* Gives the runtime a place for its pid file and its log: a small file system in memory, without a name, which lives with its
 * descriptor. On a full state directory `runtime exec` would begin the program, find no room for the pid, and kill it.
 * Nothing of it is on a disk: it goes with this shim and the runtime, which dies with the shim. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernel.h"
#include "shim.h"

static int set(int context_fd, const char *key, const char *value)
{
	return (int)syscall(SYS_fsconfig, context_fd, FSCONFIG_SET_STRING_NUMBER, key, value, 0);
}

/* Makes one, and returns its root or -errno. It is small: its pages count for the process that writes them. */
static int make(void)
{
	int context_fd = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC_NUMBER), fd;

	if (context_fd < 0)
		return -errno;
	if (set(context_fd, "size", "1m") || set(context_fd, "nr_inodes", "64") || set(context_fd, "mode", "0700") ||
	    syscall(SYS_fsconfig, context_fd, FSCONFIG_CMD_CREATE_NUMBER, NULL, NULL, 0))
		fd = -errno;
	else if ((fd = (int)syscall(SYS_fsmount, context_fd, FSMOUNT_CLOEXEC_NUMBER, MOUNT_ATTR_NOTHING_RUNS)) < 0)
		fd = -errno;
	close(context_fd);
	return fd;
}

static bool is_short(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

static void name(const struct answers *a, int owner, char *pid_file, char *log)
{
	snprintf(pid_file, ANSWERS_PATH_SIZE, "/proc/%d/fd/%d/pid", owner, a->fd);
	snprintf(log, ANSWERS_PATH_SIZE, "/proc/%d/fd/%d/log", owner, a->fd);
}

/* Gives the file two names: the runtime's in its command line, and ours. */
static void put(struct shim *shim, const char **file, const char *its, const char *ours)
{
	for (const char **word = shim->plan.create; *word; word++)
		if (!strcmp(*word, *file))
			*word = its;
	*file = ours;
}

/* Where the kernel has no such file system for us (before 5.2; without CAP_SYS_ADMIN; under seccomp) the files stay where
 * the plan has them, in the run directory. So do those with relative paths, which others read: iSulad. 0, or -errno when
 * there is no memory or descriptor for it now. */
int answers_begin(struct shim *shim)
{
	struct answers *a = &shim->answers;

	if (*shim->plan.pid_file != '/' || *shim->plan.runtime_log != '/')
		return 0;
	a->fd = make();
	if (a->fd < 0)
		return is_short(a->fd) ? a->fd : 0;
	name(a, getpid(), a->pid_file, a->runtime_log);
	put(shim, &shim->plan.pid_file, a->its_pid_file, a->pid_file);
	put(shim, &shim->plan.runtime_log, a->its_log, a->runtime_log);
	return 0;
}

/* In the child of vfork that becomes the runtime: a descriptor of its own, and the files' names by way of that. The shim's
 * are closed for a moment before the shim is dead, and its death kills the runtime; one that found no place for the pid in
 * this moment would kill and reap the program that it has begun, and no other process would ever have seen it. Runtimes keep
 * what they have open from the container, but for what they preserve by number; a hook may get it. */
void answers_hand_over(struct answers *a)
{
	if (a->fd < 0)
		return;
	fcntl(a->fd, F_SETFD, 0);
	name(a, getpid(), a->its_pid_file, a->its_log);
}

/* They have been read. */
void answers_end(struct shim *shim)
{
	if (shim->answers.fd >= 0)
		close(shim->answers.fd);
	shim->answers.fd = -1;
}

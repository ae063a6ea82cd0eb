/* Namespaces joined by descriptor. The runtime's configuration names links; while the runtime makes the container they
 * lead to this shim's own descriptors. A path by the pid of the namespaces' first process could become a stranger's; the
 * runtime dies with this shim, so this path cannot. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "kernel.h"
#include "shim.h"

/* 0 when the descriptor is a namespace, -EINVAL when it is something else, -EBADF when there is none. */
static int check_namespace(int fd)
{
	struct statfs found;

	if (fstatfs(fd, &found))
		return -errno;
	return found.f_type == NSFS_MAGIC_NUMBER ? 0 : -EINVAL;
}

/* Before anything else can come to a slot that was left free. What lies at one that the plan does not name is none of
 * ours, and a replacement makes no container. 0, -EBADF or -EINVAL. */
int join_slots(struct shim *shim)
{
	int error = 0;

	if (shim->adopted)
		shim->plan.join_count = 0;
	for (int i = 0; i < JOIN_MAX; i++)
		if (i >= shim->plan.join_count)
			close(JOIN_FD + i);
		else if (!error && !(error = check_namespace(JOIN_FD + i)))
			fcntl(JOIN_FD + i, F_SETFD, FD_CLOEXEC);
	return error;
}

static int link_to(const char *path, int fd)
{
	char goal[64];

	snprintf(goal, sizeof goal, "/proc/%d/fd/%d", getpid(), fd);
	if (unlink(path) && errno != ENOENT)
		return -errno;
	return symlink(goal, path) ? -errno : 0;
}

/* Every link of the plan, in place of one that an earlier run may have left. 0 or -errno; join_end either way. */
int join_begin(struct shim *shim)
{
	int error = 0;

	for (int i = 0; i < shim->plan.join_count && !error; i++)
		error = link_to(shim->plan.join[i], JOIN_FD + i);
	return error;
}

/* The container has joined by now, or never will; from here on its own processes hold the namespaces. */
void join_end(struct shim *shim)
{
	for (int i = 0; i < shim->plan.join_count; i++) {
		unlink(shim->plan.join[i]);
		close(JOIN_FD + i);
	}
}

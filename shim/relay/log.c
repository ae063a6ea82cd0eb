/* The log of the relay: the bundle's fifo, which containerd reads. Opened for each line, and never waited for: a line
 * that is not read is lost. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon.h"

void relay_log(const struct relay *r, const char *level, const char *text)
{
	char line[512];
	int fd = open(r->log, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	int size = snprintf(line, sizeof line, "level=%s msg=\"%s\" group=%.*s pid=%d\n", level, text, 256, r->group,
			    (int)getpid());

	if (fd < 0)
		return;
	if (write(fd, line, size < (int)sizeof line ? (size_t)size : sizeof line - 1) < 0)
		size = 0;
	close(fd);
}

/* One write at a time of an open file, which nobody waits for: io_submit(2), io_getevents(2). For Python, part of the
 * extension only. Numbers are ABI: include/uapi/linux/aio_abi.h. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core.h"

#define WRITE_COMMAND 1	/* IOCB_CMD_PWRITE */
#define SAYS_BY_EVENTFD 1 /* IOCB_FLAG_RESFD */

struct control_block {
	uint64_t data;
	uint32_t key_and_flags[2]; /* in the order of the machine's bytes; the kernel sets the key */
	uint16_t command;
	int16_t priority;
	uint32_t fd;
	uint64_t buffer;
	uint64_t size;
	int64_t offset;
	uint64_t reserved;
	uint32_t flags;
	uint32_t event_fd;
};
_Static_assert(sizeof(struct control_block) == 64, "of every kernel");

struct io_end {
	uint64_t data;
	uint64_t block;
	int64_t result;
	int64_t more;
};

/* `context`: of one write. Less than 0: EAGAIN when fs.aio-max-nr are in use, ENOSYS. */
int exitd_aio_open(uint64_t *context)
{
	unsigned long made = 0;

	if (syscall(SYS_io_setup, 1, &made))
		return -errno;
	*context = made;
	return 0;
}

/* Returns when the write has ended that is under way. */
int exitd_aio_close(uint64_t context)
{
	return syscall(SYS_io_destroy, (unsigned long)context) ? -errno : 0;
}

/* Begins a write: `event_fd` becomes readable when it has ended. The buffer must stay until then. */
int exitd_aio_write(uint64_t context, int fd, int event_fd, const void *data, uint64_t size, int64_t offset)
{
	struct control_block block = {
		.command = WRITE_COMMAND,
		.fd = (uint32_t)fd,
		.buffer = (uint64_t)(uintptr_t)data,
		.size = size,
		.offset = offset,
		.flags = SAYS_BY_EVENTFD,
		.event_fd = (uint32_t)event_fd,
	};
	struct control_block *blocks[] = { &block };

	return syscall(SYS_io_submit, (unsigned long)context, 1L, blocks) < 0 ? -errno : 0;
}

/* The bytes that the write has written, or its error; EAGAIN: it is under way. */
int64_t exitd_aio_result(uint64_t context)
{
	struct timespec at_once = { 0, 0 };
	struct io_end end;
	long got = syscall(SYS_io_getevents, (unsigned long)context, 1L, 1L, &end, &at_once);

	if (got < 0)
		return -errno;
	return got ? end.result : -EAGAIN;
}

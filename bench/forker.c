/* forker COUNT PER_SECOND: so many processes, each of which ends at once, one after the other and as evenly as the machine
 * lets them; as many in a second as asked for, or fewer. Exit status 1 when one cannot be made. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECOND = 1000000000 };

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * (int64_t)SECOND + now.tv_nsec;
}

static void sleep_until(int64_t at_ns)
{
	struct timespec at = { .tv_sec = at_ns / SECOND, .tv_nsec = at_ns % SECOND };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

int main(int argc, char **argv)
{
	int64_t count = argc == 3 ? atoll(argv[1]) : 0, rate = argc == 3 ? atoll(argv[2]) : 1, begun_ns = now_ns();

	for (int64_t i = 0; i < count; i++) {
		int64_t due_ns = begun_ns + i * SECOND / rate;
		pid_t child;

		if (due_ns > now_ns())
			sleep_until(due_ns);
		child = vfork();	/* nothing is copied: what is measured is what forks cost others */
		if (!child)
			_exit(0);
		if (child < 0 || waitpid(child, NULL, 0) != child)
			return 1;
	}
	return 0;
}

/* leaver TURNS: after a line on its input its first thread leaves alone with 7, by a plain exit(2), while another one ends
 * the process with 0, some turns of a loop after that. wait(2) says 0; which of the two threads is the last to go is luck. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEADER_TURNS = 1500 };

static atomic_int ready;
static int turns;

static void meet(int count)
{
	atomic_fetch_add(&ready, 1);
	while (atomic_load(&ready) < 2)
		;
	for (volatile int i = 0; i < count; i++)
		;
}

static void *end_all(void *unused)
{
	meet(turns);
	syscall(SYS_exit_group, 0);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t other;
	char line;

	turns = argc > 1 ? atoi(argv[1]) : 0;
	if (read(0, &line, 1) != 1 || pthread_create(&other, NULL, end_all, NULL))
		return 1;
	meet(LEADER_TURNS);
	syscall(SYS_exit, 7);
	return 1;
}

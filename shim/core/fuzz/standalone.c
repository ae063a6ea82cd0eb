/* Runs one driver without libFuzzer: a few good inputs, and for as many seconds as asked (argument, default 1) what
 * becomes of them when bytes change, go and come. The same seed every time: what it finds, it finds again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../core.h"

#define INPUT_MAX 2048
#define SEED(text) { text, sizeof text - 1 }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct { const char *text; size_t size; } seeds[] = {
	SEED(""),
	SEED("exitd-ok 1\0k=v\0id=box\0end\0"),
	SEED("exitd-ok 99999\0k=18446744073709551615\0=\0end\0"),
	SEED("exitd-plan 1\0id=box\0run=1\0exec=\0pid_file=pid\0runtime_log=l\0log=\0oom=\0keeper=\0create_ms=1\0"
	     "remove_ms=2\0drain_ms=3\0create=/runc\0create=create\0remove=/runc\0remove=delete\0end\0"),
	SEED("exitd-plan 1\0id=box\0run=1\0pid_file=pid\0create_ms=1\0remove_ms=2\0drain_ms=3\0join=/n/net\0"
	     "join=/n/ipc\0join=/n/uts\0join=/n/pid\0create=/runc\0remove=/runc\0end\0"),
	SEED("exitd-plan 1\0id=box\0run=1\0pid_file=pid\0create_ms=1\0remove_ms=2\0drain_ms=3\0tty=1\0rows=24\0cols=80\0"
	     "json_log=/j\0log_bytes=9\0log_files=3\0buffer=65536\0log_mode=non-blocking\0hold_ms=7\0logger=/l\0"
	     "logger_env=A=b\0create=/runc\0end\0"),
	SEED("exitd-register 1\0id=box\0run=1\0exec=e\0pid=4711\0started=2\0shim=4710\0shim_started=1\0oom=/c\0seat=4\0"
	     "seat=13\0end\0"),
	SEED("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
	SEED("4711\n"),
	SEED("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a\\x5cx.scope,"
	     "task_memcg=/a\\x5cx.scope,task=tail,pid=4711,uid=0\n"),
	SEED("Memory cgroup out of memory: Killed process 4711 (tail) total-vm:34520kB, anon-rss:32128kB\n"),
	SEED("4711 (a) Z 1 ) Z 1 4711 4711 0 -1 4228364 93 0 0 0 0 0 0 0 20 0 1 0 2197 0 0 18446744073709551615 0 0 0 0 "
	     "0 0 0 4096 65536 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 11008\n"),
	SEED("\1\2\3\4\5\6\7\0\200\0some output\nand a line that is longer than the room there is for it, by far\n\nend"),
	SEED("{\"process\":{\"args\":[\"}\",1.5e3,null]},\"annotations\":{\"a\":[{}],"
	     "\"io.kubernetes.cri.sandbox-id\":\"pod\\\"x\"}}"),
	/* A Wait and a State of one task, exitd's reply to the latter, exitd gone and back, containerd reading. */
	SEED("\4\0\1\041\1\n\022containerd.task.v2.\022\4Wait\032\4\n\2c1"
	     "\1\042\3\n\022containerd.task.v2.\022\5State\032\4\n\2c1\6\1\3\5\303\022\2\n\0\5\0"
	     "\1\042\5\n\022containerd.task.v2.\022\5State\032\4\n\2c1\4\0\7\100\3\1\341\7\377"),
	/* An event of exitd's, brought to containerd and answered; the next one, given up. */
	SEED("\4\0\3\016\010\0\0\0\0\0\0\0\7event\010\0\206\377\305\012\0\0\0\0\0\0\0\1\2\0\7\100"
	     "\3\016\010\0\0\0\0\0\0\0\010event\206\12\107\0\7\100"),
	SEED("\200\1\303\244 \342\202\254 \360\237\230\200 \355\240\200 \300\257 \"\\\033\t\n\360\237\230"),
};

static uint64_t state = 0x9e3779b97f4a7c15ull;

static size_t below(size_t limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return limit ? (size_t)(state % limit) : 0;
}

/* Changes one byte, cuts the input, or repeats a part of it. */
static size_t change(uint8_t *data, size_t size)
{
	static const char likely[] = "\0\n=-)( 019dk\377\200";
	size_t at = below(size), count = below(size - at + 1);

	switch (below(5)) {
	case 0:
		return at;
	case 1:
		if (size + count > INPUT_MAX)
			return size;
		memmove(data + at + count, data + at, size - at);
		return size + count;
	case 2:
		memmove(data + at, data + at + count, size - at - count);
		return size - count;
	case 3:
		if (size)
			data[at] = (uint8_t)likely[below(sizeof likely - 1)];
		return size;
	default:
		if (size)
			data[at] = (uint8_t)below(256);
		return size;
	}
}

/* From a block of exactly its size, so that one byte too far is seen. */
static void run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void run_one(void)
{
	uint8_t data[INPUT_MAX];
	size_t pick = below(sizeof seeds / sizeof *seeds + 1), size;

	if (pick < sizeof seeds / sizeof *seeds) {
		size = seeds[pick].size;
		memcpy(data, seeds[pick].text, size);
	} else {
		size = below(INPUT_MAX);
		for (size_t i = 0; i < size; i++)
			data[i] = (uint8_t)below(256);
	}
	for (size_t changes = below(5); changes; changes--)
		size = change(data, size);
	run(data, size);
}

int main(int argc, char **argv)
{
	int64_t seconds = argc > 1 ? atoi(argv[1]) : 1, end = now_ns(CLOCK_MONOTONIC) + seconds * 1000000000;
	unsigned long inputs = 0;

	for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
		run((const uint8_t *)seeds[i].text, seeds[i].size);
	do
		for (int i = 0; i < 256; i++, inputs++)
			run_one();
	while (now_ns(CLOCK_MONOTONIC) < end);
	printf("%lu inputs\n", inputs);
	return 0;
}

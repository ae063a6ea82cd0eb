/* `-v` and `-info`: who this is, for people and for containerd. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon.h"

#ifndef EXITD_VERSION
#define EXITD_VERSION "unknown"
#endif
#define NAME "io.containerd.exitd.v2"

int version_main(void)
{
	printf(PROGRAM ":\n  Version:  " EXITD_VERSION "\n  Revision: \n\n");
	return fflush(stdout) ? 1 : 0;
}

/* containerd.types.RuntimeInfo. What stands on stdin, options of a runtime, changes nothing. */
int info_main(void)
{
	char version[64], data[256];
	struct writer inner = { .data = version, .size = sizeof version }, w = { .data = data, .size = sizeof data };

	proto_text(&inner, 1, EXITD_VERSION, strlen(EXITD_VERSION));
	proto_text(&w, 1, NAME, strlen(NAME));
	proto_text(&w, 2, version, inner.used);
	return write(STDOUT_FILENO, data, w.used) == (ssize_t)w.used ? 0 : 1;
}

/* containerd-shim-exitd-v2: what containerd starts for the runtime io.containerd.exitd.v2. One small process for
 * each pod hands containerd's calls on to exitd and keeps containerd's connection while exitd is away. Of ends it then is
 * the witness.
 *
 *   -namespace NS -address SOCKET -id ID [-bundle DIR] start | delete, -v, -info
 *
 * EXITD_STATE names exitd's state directory. Exit status: 0 done, 1 failed, 3 bad call. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon.h"

int main(int argc, char **argv)
{
	static struct words words;

	umask(0022);	/* whatever containerd's is: directories are made here that others must get through */
	if (!words_read(&words, argc, argv)) {
		if (!strcmp(words.action, "start"))
			return start_main(&words, (char *)words.action);
		if (!strcmp(words.action, "delete"))
			return delete_main(&words);
		if (!strcmp(words.action, "-v"))
			return version_main();
		if (!strcmp(words.action, "-info"))
			return info_main();
	}
	fprintf(stderr, "usage: " PROGRAM " -namespace NS -address SOCKET -id ID [-bundle DIR] start|delete\n"
			"       " PROGRAM " -v|-info\n");
	return 3;
}

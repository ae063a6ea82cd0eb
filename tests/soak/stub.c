/* An OCI runtime without containers, for a soak of what exitd does: create, start, state, kill, delete and exec of
 * processes of the host, in their own root file system, with neither namespace nor cgroup.
 * Compiled by tests/soak/stub.py. Source of the commands: runc(8); of config.json: runtime-spec, config.md. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 18, ARGS_MAX = 64 };

struct asked {
	const char *root, *bundle, *process, *pid_file, *signal, *command, *id;
};

static char text[TEXT_MAX];
static char *args[ARGS_MAX + 1];

static void fail(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	fputs("stub: ", stderr);
	vfprintf(stderr, format, values);
	fputc('\n', stderr);
	va_end(values);
	exit(1);
}

static const char *path_of(const struct asked *a, const char *name)
{
	static char path[4][4096];
	static unsigned at;
	char *out = path[at++ % 4];

	if (snprintf(out, sizeof path[0], "%s/%s%s%s", a->root, a->id, *name ? "/" : "", name) >= (int)sizeof path[0])
		fail("a path is too long");
	return out;
}

static void put(const char *path, const char *what)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, what, strlen(what)) != (ssize_t)strlen(what) || close(fd))
		fail("%s: %s", path, strerror(errno));
}

static void put_pid(const char *path, pid_t pid)
{
	char digits[32], part[4096];

	snprintf(digits, sizeof digits, "%d", (int)pid);
	snprintf(part, sizeof part, "%s.part", path);
	put(part, digits);
	if (rename(part, path))
		fail("%s: %s", path, strerror(errno));
}

static pid_t init_of(const struct asked *a)
{
	char digits[32] = "";
	int fd = open(path_of(a, "pid"), O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, digits, sizeof digits - 1) <= 0)
		fail("container does not exist");
	close(fd);
	return (pid_t)atoi(digits);
}

static int lives(pid_t pid)
{
	char path[64], line[512] = "";
	const char *name_end;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (read(fd, line, sizeof line - 1) < 0)
		line[0] = 0;
	close(fd);
	name_end = strrchr(line, ')');
	return name_end && name_end[2] != 'Z' && name_end[2] != 'X';
}

/* One string of JSON at `at`, in place; of escapes those that exitd's JSON has for ASCII. What follows it. */
static char *string_at(char *at, char **out)
{
	char *to = *out = ++at;

	for (; *at && *at != '"'; at++) {
		if (*at != '\\')
			*to++ = *at;
		else if (*++at == 'u')
			*to++ = (char)strtol((char[3]){ at[3], at[4], 0 }, NULL, 16), at += 4;
		else
			*to++ = *at == 'n' ? '\n' : *at == 't' ? '\t' : *at;
	}
	at += *at == '"';
	*to = 0;
	return at;
}

/* The path of the root file system. `read_args` comes after it: strings are ended in place. */
static const char *read_root(const char *path)
{
	static char copy[4096];
	char *at = strstr(text, "\"root\"");

	if (!at || !(at = strstr(at, "\"path\"")) || !(at = strchr(at + 6, '"')))
		fail("%s: no root", path);
	snprintf(copy, sizeof copy, "%.*s", (int)strcspn(at + 1, "\""), at + 1);
	return copy;
}

static void read_text(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, text, sizeof text - 1) < 0)
		fail("%s: %s", path, strerror(errno));
	close(fd);
}

/* The strings of the first list named "args" in the file. */
static void read_args(const char *path)
{
	char *at = strstr(text, "\"args\"");
	int count = 0;

	if (!at || !(at = strchr(at, '[')))
		fail("%s: no args", path);
	for (at++; *at && *at != ']' && count < ARGS_MAX;)
		at = *at == '"' ? string_at(at, &args[count++]) : at + 1;
	args[count] = NULL;
	if (!count)
		fail("%s: args is empty", path);
}

/* A process that leads its session, and executes `args` below `root` once `go`, if there is one, has been written to. */
static pid_t begin(const char *root, const char *go)
{
	char byte;
	pid_t pid = fork();

	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid)
		return pid;
	setsid();
	if (go) {
		int fd = open(go, O_RDONLY | O_CLOEXEC);

		if (fd < 0 || read(fd, &byte, 1) != 1)
			_exit(1);
	}
	if (!chroot(root) && !chdir("/"))
		execvp(args[0], args);
	_exit(127);
}

static void create(const struct asked *a)
{
	char config[4096], base[8192];
	const char *go, *root;
	pid_t pid;

	if (!a->bundle || !a->pid_file)
		fail("create needs --bundle and --pid-file");
	snprintf(config, sizeof config, "%s/config.json", a->bundle);
	read_text(config);
	root = read_root(config);
	snprintf(base, sizeof base, "%s%s%s", *root == '/' ? "" : a->bundle, *root == '/' ? "" : "/", root);
	read_args(config);
	mkdir(a->root, 0700);
	if (mkdir(path_of(a, ""), 0700))
		fail("container with id exists: %s", a->id);
	go = path_of(a, "go");
	if (mkfifo(go, 0600))
		fail("%s: %s", go, strerror(errno));
	pid = begin(base, go);
	put_pid(path_of(a, "pid"), pid);
	put(path_of(a, "state.json"), "{}");
	put_pid(a->pid_file, pid);
}

static void start(const struct asked *a)
{
	int fd;

	if (!lives(init_of(a)))
		fail("cannot start a container that has stopped");
	fd = open(path_of(a, "go"), O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "", 1) != 1)
		fail("start: %s", strerror(errno));
	unlink(path_of(a, "go"));
}

static void state(const struct asked *a)
{
	pid_t pid = init_of(a);
	const char *status = !lives(pid) ? "stopped" : access(path_of(a, "go"), F_OK) ? "running" : "created";

	printf("{\"ociVersion\": \"1.0.2\", \"id\": \"%s\", \"status\": \"%s\", \"pid\": %d}\n", a->id, status, (int)pid);
}

static void delete(const struct asked *a)
{
	static const char *const FILES[] = { "pid", "pid.part", "go", "state.json" };

	if (access(path_of(a, ""), F_OK))
		return;
	if (!access(path_of(a, "pid"), F_OK) && lives(init_of(a)))
		kill(init_of(a), SIGKILL);
	for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
		unlink(path_of(a, FILES[i]));
	if (rmdir(path_of(a, "")))
		fail("%s: %s", path_of(a, ""), strerror(errno));
}

static void run_exec(const struct asked *a)
{
	char root[64];

	if (!a->process || !a->pid_file)
		fail("exec needs --process and --pid-file");
	if (!lives(init_of(a)))
		fail("cannot exec in a stopped container");
	snprintf(root, sizeof root, "/proc/%d/root", (int)init_of(a));
	read_text(a->process);
	read_args(a->process);
	put_pid(a->pid_file, begin(root, NULL));
}

static void read_words(struct asked *a, char **words)
{
	const struct {
		const char *name;
		const char **to;
	} WITH_VALUE[] = {
		{ "--root", &a->root },	       { "--bundle", &a->bundle }, { "--process", &a->process },
		{ "--pid-file", &a->pid_file }, { "--log", NULL },	   { "--log-format", NULL },
	};
	const char **rest[] = { &a->command, &a->id, &a->signal };
	size_t at = 0;

	for (; *words; words++) {
		size_t i = 0, count = sizeof WITH_VALUE / sizeof *WITH_VALUE;

		for (; i < count && strcmp(*words, WITH_VALUE[i].name); i++)
			;
		if (i < count && words[1]) {
			words++;
			if (WITH_VALUE[i].to)
				*WITH_VALUE[i].to = *words;
		} else if (strncmp(*words, "--", 2) && at < sizeof rest / sizeof *rest) {
			*rest[at++] = *words;
		}
	}
	if (!a->root || !a->command)
		fail("no --root, or no command");
	if (!a->id)
		fail("%s: of which container?", a->command);
}

int main(int argc, char **argv)
{
	struct asked a = { 0 };

	if (argc == 2 && !strcmp(argv[1], "--version"))
		return puts("stub version 1") == EOF;
	read_words(&a, argv + 1);
	if (!strcmp(a.command, "create"))
		create(&a);
	else if (!strcmp(a.command, "start"))
		start(&a);
	else if (!strcmp(a.command, "state"))
		state(&a);
	else if (!strcmp(a.command, "delete"))
		delete(&a);
	else if (!strcmp(a.command, "exec"))
		run_exec(&a);
	else if (!strcmp(a.command, "kill") && a.signal)
		return kill(init_of(&a), atoi(a.signal)) != 0;
	else
		fail("%s is not done here", a.command);
	return 0;
}

/* The command line in Go's manner: one dash or two, a value behind a blank or behind `=`. Unknown flags are passed
 * over, since containerd learns new ones. */
#include <stdlib.h>
#include <string.h>

#include "daemon.h"

#define STATE "/run/exitd"

static bool is_action(const char *word)
{
	return !strcmp(word, "start") || !strcmp(word, "delete");
}

static const char **place_of(struct words *w, const char *name, size_t size)
{
	const struct { const char *name; const char **place; } flags[] = {
		{ "namespace", &w->name_space }, { "id", &w->id }, { "address", &w->address }, { "bundle", &w->bundle },
	};

	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		if (strlen(flags[i].name) == size && !memcmp(flags[i].name, name, size))
			return flags[i].place;
	return NULL;
}

/* Flags that stand alone; of an unknown one the next word is taken for its value if it looks like one. */
static bool takes_value(const char *name, const char *next)
{
	return next && *next != '-' && !is_action(next) && strcmp(name, "debug");
}

static const char *alone(const char *name)
{
	if (!strcmp(name, "v") || !strcmp(name, "version"))
		return "-v";
	return !strcmp(name, "info") ? "-info" : NULL;
}

/* 0, or -1 when there is nothing to do in it. */
int words_read(struct words *w, int argc, char **argv)
{
	const char *state = getenv("EXITD_STATE"), *events = getenv("TTRPC_ADDRESS");

	*w = (struct words){ .name_space = "", .id = "", .address = "", .bundle = "" };
	w->state = state && *state == '/' ? state : STATE;
	w->events = events ? events : "";
	for (int i = 1; i < argc && !w->action; i++) {
		const char *name = argv[i] + 1 + (argv[i][0] == '-' && argv[i][1] == '-'), *equals;
		const char **place;

		if (argv[i][0] != '-') {
			w->action = argv[i];
			break;
		}
		equals = strchr(name, '=');
		place = place_of(w, name, equals ? (size_t)(equals - name) : strlen(name));
		w->action = equals ? NULL : alone(name);
		if (place && equals)
			*place = equals + 1;
		else if (place && i + 1 < argc)
			*place = argv[++i];
		else if (!place && !equals && i + 1 < argc && takes_value(name, argv[i + 1]))
			i++;
	}
	return w->action ? 0 : -1;
}

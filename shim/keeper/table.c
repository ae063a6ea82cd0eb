/* The runs this keeper knows. A few thousand at most are looked up a few times each: a plain array. */
#include <stdlib.h>
#include <string.h>

#include "keeper.h"

struct run *table_find(struct keeper *k, const char *id, uint64_t run, const char *exec)
{
	for (int i = 0; i < k->run_count; i++)
		if (k->runs[i].run == run && !strcmp(k->runs[i].id, id) && !strcmp(k->runs[i].exec, exec))
			return &k->runs[i];
	return NULL;
}

static int grow(struct keeper *k)
{
	int room = k->run_room ? k->run_room * 2 : 64;
	struct run *runs = room > RUNS_MAX ? NULL : realloc(k->runs, (size_t)room * sizeof *runs);

	if (!runs)
		return 0;
	k->runs = runs;
	k->run_room = room;
	return 1;
}

/* A new run with an entry of its own in the journal, or NULL: full. Pointers into the table are good until the next add. */
struct run *table_add(struct keeper *k, const char *id, uint64_t run, const char *exec)
{
	int entry;
	struct run *new;

	if (strlen(id) >= ID_MAX || strlen(exec) >= ID_MAX || !record_takes(id) || !record_takes(exec) || (k->run_count == k->run_room && !grow(k)))
		return NULL;
	entry = journal_reserve(k);
	if (entry < 0)
		return NULL;
	new = &k->runs[k->run_count++];
	memset(new, 0, sizeof *new);
	strcpy(new->id, id);
	strcpy(new->exec, exec);
	new->run = run;
	new->entry = entry;
	new->out_fd = new->err_fd = new->in_fd = new->stage_fds[0] = new->stage_fds[1] = new->init_fd = -1;
	new->zombie_status = -1;
	return new;
}

/* The run is settled: its journal entry leaves, its descriptors are closed. */
void table_drop(struct keeper *k, struct run *run)
{
	journal_clear(k, run->entry);
	slots_close(run);
	strangers_forget(run);
	*run = k->runs[--k->run_count];
}

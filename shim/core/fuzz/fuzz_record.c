/* Any facts make a whole block or are refused; nothing is written beyond the block. */
#include <stdlib.h>
#include <string.h>

#include "../core.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct exit_facts facts;
	char id[ID_MAX], *block;
	size_t room, length;
	int written;

	if (size < sizeof facts + 2)
		return 0;
	memcpy(&facts, data, sizeof facts);
	memcpy(&room, data + sizeof facts - sizeof room, sizeof room);
	length = size - sizeof facts < sizeof id ? size - sizeof facts : sizeof id - 1;
	memcpy(id, data + size - length, length);
	id[length] = 0;
	facts.id = facts.exec = id;
	facts.boot_id = "";
	facts.witness = "shim";
	room %= RECORD_SIZE + 1;
	block = malloc(room + 1);
	written = record_format(block, room, &facts);
	if (written > 0 && ((size_t)written >= room || block[room - 1] != '\n' || block[written - 1] != '}'))
		abort();
	if (written > 0 && !record_takes(id))
		abort();
	free(block);
	return 0;
}

/* What the relay reads in a bundle and a run directory: any bytes as config.json, as a path, as a record. */
#include <stdlib.h>
#include <string.h>

#include "../../relay/relay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	char group[GROUP_MAX], hash[HASH_SIZE], *path = malloc(size + 2);
	struct seen seen;
	int length = group_find(text, size, group, sizeof group);

	if (length >= 0 && (size_t)length >= sizeof group)
		abort();
	if (!evidence_read(&seen, text, size) && (seen.status < 0 || seen.status > 255))
		abort();
	path[0] = '/';
	memcpy(path + 1, text, size);
	path[size + 1] = 0;
	length = address_clean(path);
	if (length < 1 || strlen(path) != (size_t)length || *path != '/' || strstr(path, "//"))
		abort();
	sha256_hex(hash, text, size);
	if (strlen(hash) != HASH_SIZE - 1)
		abort();
	free(path);
	return 0;
}

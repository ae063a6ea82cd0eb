/* Any bytes are a message or none; whatever is a message can be asked for every key. */
#include <stdlib.h>
#include <string.h>

#include "../core.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const keys[] = { "k", "id", "", "end", "exitd-ok 1" };
	const char *text = (const char *)data, *values[4];
	uint64_t number;

	if (fields_check(text, size, "exitd-ok") <= 0)
		return 0;
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		int count = fields_list(text, size, keys[i], values, 4);

		if (count > 4 || (count > 0 && strlen(values[count - 1]) > size))
			abort();
		if (fields_number(text, size, keys[i], &number) == 0 && count == 0)
			abort();
	}
	return 0;
}

/* As much protobuf as the relay reads and writes: fields of varints and of bytes. */
#include <errno.h>
#include <string.h>

#include "relay.h"

static int varint(const char **at, const char *end, uint64_t *out)
{
	*out = 0;
	for (int shift = 0; shift < 70; shift += 7) {
		unsigned char byte;

		if (*at == end)
			return -EBADMSG;
		byte = (unsigned char)*(*at)++;
		if (shift < 64)
			*out |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return 0;
	}
	return -EBADMSG;
}

/* The next field, fixed ones included (their bytes as text): 1, at the end 0, or -EBADMSG. */
int proto_next(const char **at, const char *end, struct field *out)
{
	uint64_t tag, size = 0;
	int wire;

	if (*at == end)
		return 0;
	memset(out, 0, sizeof *out);
	if (varint(at, end, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX >> 3)
		return -EBADMSG;
	wire = (int)(tag & 7);
	out->number = (uint32_t)(tag >> 3);
	out->is_text = wire == 2;
	if (wire == 0)
		return varint(at, end, &out->value) ? -EBADMSG : 1;
	if (wire != 1 && wire != 2 && wire != 5)
		return -EBADMSG;
	if (wire == 2 && varint(at, end, &size))
		return -EBADMSG;
	size = wire == 1 ? 8 : wire == 5 ? 4 : size;
	if (size > (uint64_t)(end - *at))
		return -EBADMSG;
	out->text = (struct text){ *at, (size_t)size };
	*at += size;
	return 1;
}

static void put(struct writer *w, const char *data, size_t size)
{
	if (w->overflow || size > w->size - w->used) {
		w->overflow = 1;
		return;
	}
	if (size)
		memcpy(w->data + w->used, data, size);
	w->used += size;
}

static void put_varint(struct writer *w, uint64_t value)
{
	char bytes[10];
	size_t count = 0;

	for (; value > 0x7f; value >>= 7)
		bytes[count++] = (char)(value | 0x80);
	bytes[count++] = (char)value;
	put(w, bytes, count);
}

/* Nothing for 0, as proto3 wants it. */
void proto_number(struct writer *w, int number, uint64_t value)
{
	if (!value)
		return;
	put_varint(w, (uint64_t)number << 3);
	put_varint(w, value);
}

void proto_text(struct writer *w, int number, const char *text, size_t size)
{
	put_varint(w, (uint64_t)number << 3 | 2);
	put_varint(w, size);
	put(w, text, size);
}

/* The status code of a ttrpc Response (no status is 0), or -EBADMSG; its payload into `payload`. */
int response_code(const char *data, size_t size, struct text *payload)
{
	const char *at = data, *end = data + size;
	struct field field, inner;
	int code = 0, more;

	*payload = (struct text){ data, 0 };
	while ((more = proto_next(&at, end, &field)) > 0) {
		const char *sub = field.text.at;

		if (field.is_text && field.number == 2)
			*payload = field.text;
		if (!field.is_text || field.number != 1)
			continue;
		while ((more = proto_next(&sub, field.text.at + field.text.size, &inner)) > 0)
			if (inner.number == 1 && !inner.text.at)
				code = (int)(inner.value & 0x7fffffff);
		if (more < 0)
			return more;
	}
	return more < 0 ? more : code;
}

/* A Response with this status; its size or -E2BIG. */
int response_error(char *out, size_t size, int code, const char *text)
{
	char inner[256];
	struct writer status = { .data = inner, .size = sizeof inner }, w = { .data = out, .size = size };

	proto_number(&status, 1, (uint64_t)code);
	proto_text(&status, 2, text, strlen(text));
	proto_text(&w, 1, inner, status.used);
	return status.overflow || w.overflow ? -E2BIG : (int)w.used;
}

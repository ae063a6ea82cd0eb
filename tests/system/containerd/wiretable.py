"""Protobuf messages from tables of field numbers: what a peer speaks, written down apart from what exitd is built of.

A table has a line `Message: name number type, ...` for each; lines without such a beginning go on with it. A type is
one of protobuf's own words, another message of the table, or `time` or `any`. `*` before it makes it repeated; `map` is
one of strings to strings.
"""

import re
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message, message_factory, timestamp_pb2

Field = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
    "bool": Field.TYPE_BOOL,
    "int32": Field.TYPE_INT32,
    "int64": Field.TYPE_INT64,
    "uint32": Field.TYPE_UINT32,
    "uint64": Field.TYPE_UINT64,
}
KNOWN = {"any": any_pb2.Any.DESCRIPTOR, "time": timestamp_pb2.Timestamp.DESCRIPTOR}


class Table:
    """The messages of one package, by their short names."""

    def __init__(self, package: str, text: str) -> None:
        self._pool, self.package = descriptor_pool.DescriptorPool(), package
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for known in KNOWN.values():
            self._pool.AddSerializedFile(known.file.serialized_pb)
            file.dependency.append(known.file.name)
        for name, fields in re.findall(r"(\w+):([^:]*)(?=\n *\w+:|\Z)", text):
            self._describe(file, name, fields)
        self._pool.Add(file)

    def __getattr__(self, name: str) -> Any:
        """A message class."""
        try:
            found = self._pool.FindMessageTypeByName(f"{self.package}.{name}")
        except KeyError:
            raise AttributeError(name) from None
        return message_factory.GetMessageClass(found)

    def _describe(self, file: descriptor_pb2.FileDescriptorProto, name: str, fields: str) -> None:
        described = file.message_type.add(name=name)
        for words in filter(None, map(str.split, fields.split(","))):
            field = described.field.add(name=words[0], number=int(words[1]), label=Field.LABEL_OPTIONAL)
            self._set_type(described, field, words[2])

    def _set_type(self, holder: descriptor_pb2.DescriptorProto, field: Field, word: str) -> None:
        if word.startswith("*") or word == "map":
            field.label, word = Field.LABEL_REPEATED, word.removeprefix("*")
        if word in SCALARS:
            field.type = SCALARS[word]
            return
        field.type = Field.TYPE_MESSAGE
        field.type_name = f".{KNOWN[word].full_name}" if word in KNOWN else f".{self.package}.{word}"
        if word == "map":
            entry = "".join(part.capitalize() for part in field.name.split("_")) + "Entry"
            pairs = holder.nested_type.add(name=entry, options=descriptor_pb2.MessageOptions(map_entry=True))
            for number, key in enumerate(("key", "value"), 1):
                pairs.field.add(name=key, number=number, label=Field.LABEL_OPTIONAL, type=Field.TYPE_STRING)
            field.type_name = f".{self.package}.{holder.name}.{entry}"


def plain(read: message.Message) -> dict[str, Any]:
    """All fields that are set, messages as dictionaries; a time as seconds."""
    return {field.name: _plain(field, value) for field, value in read.ListFields()}


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return value.seconds + value.nanos / 1e9
    return [plain(one) for one in value] if field.is_repeated else plain(value)

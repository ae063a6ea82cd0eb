"""Messages as odd as their descriptors allow."""

import math
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

TEXTS = ("", "\0", "\x1b[2J", "..", "/", "a=b", "\u202e", "-1", "9" * 400, "x" * 100_000, "always", "9", "a\nb", "*")
FLOATS = (0.0, -1.0, math.inf, -math.inf, math.nan, 1e300, 5e-324)
RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def value_of(field: FieldDescriptor, depth: int, texts: Sequence[str]) -> st.SearchStrategy[Any]:
    kind = field.cpp_type
    if kind in RANGES:
        least, most = RANGES[kind]
        return st.sampled_from([0, 1, least, most]) | st.integers(least, most)
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        assert field.message_type is not None
        return message_of(GetMessageClass(field.message_type), depth - 1, texts)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=5)
    return {
        FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
        FieldDescriptor.CPPTYPE_DOUBLE: st.sampled_from(FLOATS),
        FieldDescriptor.CPPTYPE_FLOAT: st.sampled_from(FLOATS),
        FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 99),
        FieldDescriptor.CPPTYPE_STRING: st.sampled_from(texts) | st.text(max_size=5),
    }[kind]


@st.composite
def message_of(draw: st.DrawFn, cls: type[Message], depth: int = 3, texts: Sequence[str] = TEXTS) -> Any:
    """Some fields, each as odd as its type allows. `texts`: what texts may be, besides short random ones."""
    made: Any = cls()
    fields = [f for f in made.DESCRIPTOR.fields if depth > 0 or f.message_type is None]
    for field in draw(st.lists(st.sampled_from(fields), max_size=4, unique_by=lambda f: f.name)) if fields else ():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(made, field.name)[draw(st.sampled_from(texts))] = draw(st.sampled_from(texts))
        elif field.is_repeated:
            values = draw(st.lists(value_of(field, depth, texts), max_size=3))
            getattr(made, field.name).extend(values)
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(draw(value_of(field, depth, texts)))
        else:
            setattr(made, field.name, draw(value_of(field, depth, texts)))
    return made

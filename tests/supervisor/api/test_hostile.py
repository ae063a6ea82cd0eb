"""Whatever a request says, it is refused by its field, or becomes a fact that is stored and shown again."""

import math
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import execrequests, replies, requests
from supervisor.model.errors import ExitdError
from supervisor.model.execs import Exec, ExecPhase
from supervisor.model.values import Container, Phase, RunKey
from supervisor.model.views import View
from supervisor.store import codec

TEXTS = ("", "\0", "\x1b[2J", "..", "/", "a=b", "\u202e", "-1", "9" * 400, "x" * 100_000, "always", "9", "a\nb", "*")
FLOATS = (0.0, -1.0, math.inf, -math.inf, math.nan, 1e300, 5e-324)
RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
many = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def value_of(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    kind = field.cpp_type
    if kind in RANGES:
        least, most = RANGES[kind]
        return st.sampled_from([0, 1, least, most]) | st.integers(least, most)
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        assert field.message_type is not None
        return message_of(GetMessageClass(field.message_type), depth - 1)
    return {
        FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
        FieldDescriptor.CPPTYPE_DOUBLE: st.sampled_from(FLOATS),
        FieldDescriptor.CPPTYPE_FLOAT: st.sampled_from(FLOATS),
        FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 99),
        FieldDescriptor.CPPTYPE_STRING: st.sampled_from(TEXTS) | st.text(max_size=5),
    }.get(kind, st.binary(max_size=5))


@st.composite
def message_of(draw: st.DrawFn, cls: type[Message], depth: int = 3) -> Any:
    """Some fields, each as odd as its type allows."""
    made: Any = cls()
    fields = [f for f in made.DESCRIPTOR.fields if depth > 0 or f.message_type is None]
    for field in draw(st.lists(st.sampled_from(fields), max_size=4, unique_by=lambda f: f.name)) if fields else ():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(made, field.name)[draw(st.sampled_from(TEXTS))] = draw(st.sampled_from(TEXTS))
        elif field.is_repeated:
            values = draw(st.lists(value_of(field, depth), max_size=3))
            getattr(made, field.name).extend(values)
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(draw(value_of(field, depth)))
        else:
            setattr(made, field.name, draw(value_of(field, depth)))
    return made


@many
@given(message_of(pb.ContainerSpec))
def test_whatever_a_spec_says_it_is_refused_or_stored_and_shown(message: pb.ContainerSpec) -> None:
    if not message.rootfs and not message.bundle and not message.image:
        message.rootfs = "/"
    try:
        spec = requests.spec_of(message)
    except ExitdError as refused:
        assert len(str(refused)) < 10_000
        return
    container = Container("c1", spec, Phase.RUNNING, 1, 1)
    assert codec.container_of(*codec.container_row(container)) == container
    shown = replies.container_message(View(container))
    assert shown.spec.runtime == spec.runtime and not shown.error


@many
@given(message_of(pb.ExecSpec))
def test_whatever_an_exec_says_it_is_refused_or_stored_and_shown(message: pb.ExecSpec) -> None:
    message.args[:] = message.args or ["sh"]
    try:
        spec = execrequests.spec_of(message)
    except ExitdError as refused:
        assert len(str(refused)) < 10_000
        return
    e = Exec(RunKey("c1", 1, "e1"), spec, ExecPhase.RUNNING, "c1", "default", "boot")
    assert codec.exec_of(e.key, codec.exec_row(e)[3]) == e
    assert list(replies.exec_message(e).spec.args) == list(spec.args)


@pytest.mark.parametrize("words", [{"args": ["x" * (3 << 20)]}, {"args": ["a"], "env": ["A=" + "x" * (3 << 20)]}])
def test_more_words_than_a_program_takes_are_refused_of_an_exec_too(words: dict[str, list[str]]) -> None:
    with pytest.raises(ExitdError, match=r"^(args|env)"):
        execrequests.spec_of(pb.ExecSpec(**words))  # type: ignore[arg-type]  # lists of texts, both

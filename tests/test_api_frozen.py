"""Clients of the committed API go on working: only additions pass."""

import pytest
from frozen_api import COMMITTED, broken, compiled, promises, read
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

WAIT_REPLY = "exitd.v1.WaitReply"


def committed() -> FileDescriptorSet:
    return read(COMMITTED)


def main(files: FileDescriptorSet) -> FileDescriptorProto:
    """The file with the service; it imports the others."""
    return next(file for file in files.file if file.service)


def test_everything_the_committed_api_promises_is_still_there() -> None:
    assert broken(committed(), compiled()) == []


def test_the_committed_set_names_everything_the_api_has_now() -> None:
    missing = promises(compiled()).keys() - promises(committed()).keys()
    assert not missing, f"run `make api` and commit what it writes: {sorted(missing)}"


def test_a_new_field_message_and_method_pass() -> None:
    new = committed()
    file = main(new)
    file.message_type[0].field.add(name="added", number=999, type="TYPE_STRING", label="LABEL_OPTIONAL")
    file.message_type.add(name="Added")
    file.service[0].method.add(name="Added", input_type=".exitd.v1.Added", output_type=".exitd.v1.Added")
    assert broken(committed(), new) == []


def field_of(files: FileDescriptorSet) -> FieldDescriptorProto:
    return next(m for m in main(files).message_type if f"exitd.v1.{m.name}" == WAIT_REPLY).field[0]


def test_a_field_that_is_gone_is_refused() -> None:
    new = committed()
    name = field_of(new).name
    field_of(new).name = "renamed"
    assert [line.split(" ")[0] for line in broken(committed(), new)] == [f"{WAIT_REPLY}.{name}"]


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("number", 998), ("type", FieldDescriptorProto.TYPE_BYTES), ("label", FieldDescriptorProto.LABEL_REQUIRED)],
)
def test_a_field_that_changed_is_refused(attribute: str, value: int) -> None:
    new = committed()
    field_of(new).ClearField("type_name")
    setattr(field_of(new), attribute, value)
    assert len(broken(committed(), new)) == 1


def test_a_method_that_now_streams_is_refused() -> None:
    new = committed()
    method = main(new).service[0].method[0]
    method.server_streaming = not method.server_streaming
    (line,) = broken(committed(), new)
    assert method.name in line


def test_a_message_that_is_gone_is_refused_with_all_its_fields() -> None:
    new = committed()
    gone = main(new).message_type.pop()
    assert any(line.startswith(f"exitd.v1.{gone.name} ") for line in broken(committed(), new))


def test_an_enum_value_that_is_gone_is_refused() -> None:
    new = committed()
    gone = main(new).enum_type[0].value.pop()
    (line,) = broken(committed(), new)
    assert gone.name in line

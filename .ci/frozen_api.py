"""The promise of the API: whatever the committed descriptor set names is still there, under its number and type.

Run as a program it writes the set anew, unless that would take something away.
"""

import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
COMMITTED = PROTOS / "exitd" / "v1" / "exitd.binpb"
# The Python client, which imports nothing of exitd, is made of a copy.
OF_THE_CLIENT = ROOT / "client" / "exitd_client" / "api.binpb"


def promises(files: FileDescriptorSet) -> dict[str, str]:
    """Everything a client may rely on, each with what must not change about it."""
    return {name: shape for file in files.file for name, shape in _file(file.package, file)}


def broken(old: FileDescriptorSet, new: FileDescriptorSet) -> list[str]:
    """What `new` takes away from or changes of `old`, one sentence each; additions are free."""
    kept = promises(new)
    return [
        f"{name} was {shape!r}, is {kept[name]!r}" if name in kept else f"{name} ({shape}) is gone"
        for name, shape in promises(old).items()
        if kept.get(name) != shape
    ]


def compiled() -> FileDescriptorSet:
    """The set of the .proto files as they are now; RuntimeError with protoc's words when they do not compile."""
    with tempfile.NamedTemporaryFile(suffix=".binpb") as out:
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", f"--descriptor_set_out={out.name}"]
        files = sorted(map(str, COMMITTED.parent.glob("*.proto")))
        done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return read(pathlib.Path(out.name))


def read(path: pathlib.Path) -> FileDescriptorSet:
    return FileDescriptorSet.FromString(path.read_bytes())


def _file(package: str, file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    for message in file.message_type:
        yield from _message(f"{package}.{message.name}", message)
    for enum in file.enum_type:
        yield from _enum(f"{package}.{enum.name}", enum)
    for service in file.service:
        for method in service.method:
            yield f"{package}.{service.name}.{method.name}", _method(method)


def _message(name: str, message: DescriptorProto) -> Iterator[tuple[str, str]]:
    yield name, "message"
    for field in message.field:
        yield f"{name}.{field.name}", _field(field, message)
    for nested in message.nested_type:
        yield from _message(f"{name}.{nested.name}", nested)
    for enum in message.enum_type:
        yield from _enum(f"{name}.{enum.name}", enum)


def _enum(name: str, enum: EnumDescriptorProto) -> Iterator[tuple[str, str]]:
    yield name, "enum"
    for value in enum.value:
        yield f"{name}.{value.name}", str(value.number)


def _field(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    kind = field.type_name or FieldDescriptorProto.Type.Name(field.type)
    label = FieldDescriptorProto.Label.Name(field.label)
    # A field that joins or leaves a oneof clears others, or no longer does: a change, as its number would be.
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    return " ".join(filter(None, (f"{field.number}", label, kind, oneof and f"in oneof {oneof}")))


def _method(method: MethodDescriptorProto) -> str:
    request = ("stream " if method.client_streaming else "") + method.input_type
    reply = ("stream " if method.server_streaming else "") + method.output_type
    return f"({request}) returns ({reply})"


def main() -> int:
    new = compiled()
    if COMMITTED.exists() and (problems := broken(read(COMMITTED), new)):
        print("refused, clients rely on these:", *problems, sep="\n  ", file=sys.stderr)
        return 1
    for path in (COMMITTED, OF_THE_CLIENT):
        path.write_bytes(new.SerializeToString(deterministic=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Texts with a NUL byte, behind which the kernel and C see another text than Python does."""

from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from protos.exitd.v1 import exitd_pb2 as pb
from tests.supervisor.api.rig import Rig, first, refused, run

ONLY_COMPARED = {
    ("List", "filters"),
    ("ListPods", "filters"),
    ("Events", "filters"),
    ("EndWatch", "target"),
    ("DiskUsage", "ids"),
}  # with texts that exitd has: such a one is equal to none of them
VALID = {"id": "c1", "path": "/etc"}


def test_no_call_takes_a_nul_byte_in_a_text_that_goes_further(tmp_path: Path) -> None:
    service, tried = pb.DESCRIPTOR.services_by_name["Exitd"], set[str]()

    async def test(rig: Rig) -> None:
        for method in service.methods:
            fields = method.input_type.fields
            for field in fields:
                if field.type != FieldDescriptor.TYPE_STRING or (method.name, field.name) in ONLY_COMPARED:
                    continue
                values: dict[str, Any] = {
                    name: value for name, value in VALID.items() if name in {f.name for f in fields}
                }
                values[field.name] = ["a\0b"] if field.is_repeated else "a\0b"
                call = getattr(rig.exitd, method.name)(GetMessageClass(method.input_type)(**values))
                error = await refused(first(call) if method.server_streaming else call)
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (method.name, field.name)
                assert str(error.details()).startswith(field.name.removesuffix("s")), (method.name, field.name)
                tried.add(method.name)
        assert rig.node.asked == []

    run(tmp_path, test)
    assert {"TagImage", "UntagImage", "SaveImages", "PruneImages", "Commit", "Update", "Watch"} <= tried

"""The service table, read from the protobuf descriptor. Every door serves it and every client speaks it."""

from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from protos.exitd.v1 import exitd_pb2

EXITD: ServiceDescriptor = exitd_pb2.DESCRIPTOR.services_by_name["Exitd"]
# What changes something runs to its end even when its caller has gone. The others only look.
MUTATING = frozenset(
    {
        *("CreateContainer", "Start", "Stop", "Kill", "Restart", "Pause", "Resume", "Remove", "Exec"),
        *("RunPod", "StopPod", "RemovePod", "LoadImage", "PullImage", "ImportImage", "RemoveImage"),
        *("ResizePty", "CloseStdin", "ReopenLog", "Watch", "EndWatch", "ShutDownNode", "CreateVolume", "RemoveVolume"),
        *("Rename", "Update"),
        *("TagImage", "UntagImage", "PruneImages", "PruneNetworks", "Commit"),
    }
)


def classes(method: MethodDescriptor) -> tuple[Any, Any]:
    """Return the classes of the method's request and reply."""
    return message_factory.GetMessageClass(method.input_type), message_factory.GetMessageClass(method.output_type)

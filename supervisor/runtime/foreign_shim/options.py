"""The options that a shim gets with `start` and with Create: a packed message, whose type depends on the shim.

Shims of runc's family take containerd.runc.v1.Options. Others get the path of their configuration, if exitd's
configuration has one.
"""

from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

from protos.containerd import runc_pb2, runtimeoptions_pb2
from supervisor.model.values import Container, Spec
from supervisor.runtime.foreign_shim import binary

RUNTIME_ROOT = "shimrt"  # below the state directory: where runc keeps its state, apart from containerd's own
RUNTIME_OPTIONS = "runtimeoptions.v1.Options"


def packed(container: Container, state: str) -> bytes:
    """Return a serialized Any, or nothing."""
    return _packed(container.spec, state)


def _packed(spec: Spec, state: str) -> bytes:
    message: Message
    if binary.is_of_runc(spec.runtime_type):
        message = runc_pb2.Options(root=f"{state}/{RUNTIME_ROOT}", systemd_cgroup=spec.systemd_cgroup)
    elif spec.runtime_options:
        message = runtimeoptions_pb2.Options(type_url=RUNTIME_OPTIONS, config_path=spec.runtime_options[0])
    else:
        return b""
    given = Any(type_url=message.DESCRIPTOR.full_name, value=message.SerializeToString(deterministic=True))
    return given.SerializeToString(deterministic=True)

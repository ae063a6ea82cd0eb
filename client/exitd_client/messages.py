"""The messages of exitd's API, made from the descriptor set that lies beside this file.

They are in a pool of their own: a program may load them together with messages that protoc has generated from other
versions of the same .proto files. The set is a copy of protos/exitd/v1/exitd.binpb, which `make api` writes.
"""

from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor import Descriptor, ServiceDescriptor

PACKAGE = "exitd.v1"


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    """Files come after those that they import: protoc writes them so."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    data = resources.files(__package__).joinpath("api.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def descriptor(name: str) -> Descriptor:
    """Return what a message of the API is made of. Raises KeyError."""
    return _pool().FindMessageTypeByName(f"{PACKAGE}.{name}")


def service() -> ServiceDescriptor:
    return _pool().FindServiceByName(f"{PACKAGE}.Exitd")


@cache
def message(name: str) -> Any:
    """Return the class of a message of the API. Raises KeyError."""
    return message_factory.GetMessageClass(descriptor(name))


@cache
def phase(number: int) -> str:
    """Return a container's phase in small letters; the number itself where this client does not know it."""
    known = _pool().FindEnumTypeByName(f"{PACKAGE}.Phase").values_by_number
    return known[number].name.removeprefix("PHASE_").lower() if number in known else str(number)

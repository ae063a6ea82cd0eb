"""Every call of the API that the clients make, as a value: what is asked, how long it may take, how the reply is read.

Both clients are made of these, so that they ask the same. Nothing here does I/O.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from exitd_client import values
from exitd_client.errors import NeverEnded
from exitd_client.messages import message
from exitd_client.spec import container_spec, update_request

T = TypeVar("T")
LOOK_SECONDS = 30.0  # a call that only looks
WORK_SECONDS = 120.0  # a call that has the runtime work
IMAGE_SECONDS = 3600.0  # a call that brings a whole image; exitd's own limits come first
KILL_SECONDS = 60.0  # how long after the grace period an end by SIGKILL may take
GRACE_SECONDS = 10  # where neither the call nor the container says one
PULLED = ("docker://", "oci:", "docker-archive:")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call. `seconds` None: without a limit, unless the caller gives one."""

    method: str
    request: Any
    seconds: float | None
    read: Callable[[Any], T]

    def within(self, seconds: float | None) -> "Call[T]":
        """Return the call with the caller's own limit, if there is one."""
        return self if seconds is None else replace(self, seconds=seconds)


def create(image: str, args: Sequence[str], fields: Mapping[str, Any], *, replaces: bool) -> Call[values.Container]:
    request = message("CreateContainerRequest")(spec=container_spec(image, args, fields), replace=replaces)
    return Call("CreateContainer", request, WORK_SECONDS, _container)


def with_image(call: Call[values.Container], image: values.Image) -> Call[values.Container]:
    """Return the call to create a container, with the image that is in the store now."""
    request = message("CreateContainerRequest")()
    request.CopyFrom(call.request)
    request.spec.image_id = image.id
    return replace(call, request=request)


def is_pulled(call: Call[values.Container]) -> bool:
    """Return whether the image of the container has to come into the store first. exitd would have it come within
    CreateContainer too, but under the limit of that."""
    spec = call.request.spec
    return bool(spec.image.startswith(PULLED) and not spec.image_id)


def start(container: str) -> Call[values.Container]:
    return Call("Start", message("StartRequest")(id=container), WORK_SECONDS, _container)


def stop(container: str, grace_seconds: int | None, spec: Mapping[str, Any]) -> Call[values.Container]:
    """`spec` is the container's, which may have a grace period of its own."""
    request = message("StopRequest")(id=container, timeout_seconds=grace_seconds)
    return Call("Stop", request, grace_of(grace_seconds, spec) + KILL_SECONDS, _container)


def restart(container: str, grace_seconds: int | None, spec: Mapping[str, Any]) -> Call[values.Container]:
    request = message("RestartRequest")(id=container, timeout_seconds=grace_seconds)
    return Call("Restart", request, grace_of(grace_seconds, spec) + KILL_SECONDS + WORK_SECONDS, _container)


def kill(container: str, signal: str, *, everyone: bool, exec_id: str) -> Call[None]:
    request = message("KillRequest")(id=container, signal=signal, all=everyone, exec_id=exec_id)
    return Call("Kill", request, LOOK_SECONDS, _nothing)


def pause(container: str) -> Call[None]:
    return Call("Pause", message("PauseRequest")(id=container), WORK_SECONDS, _nothing)


def resume(container: str) -> Call[None]:
    return Call("Resume", message("ResumeRequest")(id=container), WORK_SECONDS, _nothing)


def rm(container: str, *, force: bool, volumes: bool = False) -> Call[None]:
    request = message("RemoveRequest")(id=container, force=force, volumes=volumes)
    return Call("Remove", request, WORK_SECONDS, _nothing)


def rename(container: str, name: str) -> Call[None]:
    return Call("Rename", message("RenameRequest")(id=container, name=name), WORK_SECONDS, _nothing)


def update(container: str, fields: Mapping[str, Any]) -> Call[None]:
    return Call("Update", update_request(container, fields), WORK_SECONDS, _nothing)


def ps(*, all: bool, filters: Sequence[str]) -> Call[tuple[values.Container, ...]]:
    request = message("ListRequest")(all=all, filters=list(filters))
    return Call("List", request, LOOK_SECONDS, lambda reply: tuple(map(values.container_of, reply.containers)))


def inspect(container: str) -> Call[values.Container]:
    return Call("Inspect", message("InspectRequest")(id=container), LOOK_SECONDS, _container)


def stats(containers: Sequence[str]) -> Call[tuple[values.Stats, ...]]:
    request = message("StatsRequest")(ids=list(containers))
    return Call("Stats", request, LOOK_SECONDS, lambda reply: tuple(map(values.stats_of, reply.containers)))


def wait(container: str, *, condition: str, run: int, exec_id: str) -> Call[values.Exit]:
    request = message("WaitRequest")(id=container, condition=condition, run=run, exec_id=exec_id)
    return Call("Wait", request, None, lambda reply: _waited(container, reply))


def wait_pod(pod: str) -> Call[tuple[values.Exit, ...]]:
    request = message("WaitRequest")(id=pod)
    return Call("Wait", request, None, lambda reply: tuple(map(values.exit_of, reply.members)))


def exec(container: str, args: Sequence[str], fields: Mapping[str, Any]) -> Call[values.Exec]:
    """`fields`: of ExecSpec, but for `env`, a mapping. Raises TypeError for args in one text."""
    if isinstance(args, str):
        raise TypeError('args: give a list of words, as ["sh", "-c", "exit 7"]')
    env = [f"{key}={value}" for key, value in (fields.get("env") or {}).items()]
    spec = message("ExecSpec")(args=list(args), **{**fields, "env": env})
    request = message("ExecRequest")(id=container, spec=spec)
    return Call("Exec", request, WORK_SECONDS, lambda reply: values.exec_of(reply.exec))


def logs(
    container: str, *, follow: bool, tail: int, since: datetime | None, until: datetime | None, run: int
) -> Call[values.LogPart]:
    request = message("LogsRequest")(
        id=container, follow=follow, tail_lines=tail, since=_moment(since), until=_moment(until), run=run
    )
    return Call("Logs", request, None if follow else WORK_SECONDS, values.log_part_of)


def exits(*, since: datetime | None, container: str, unknown: bool) -> Call[values.Exit]:
    request = message("ExitsRequest")(since=_moment(since), id=container, unknown=unknown)
    return Call("Exits", request, WORK_SECONDS, lambda reply: values.exit_of(reply.exit))


def images() -> Call[tuple[values.Image, ...]]:
    return Call(
        "ListImages",
        message("ListImagesRequest")(),
        LOOK_SECONDS,
        lambda reply: tuple(map(values.image_of, reply.images)),
    )


def pull(image: str, *, if_missing: bool) -> Call[values.Image]:
    request = message("PullImageRequest")(name=image, if_missing=if_missing)
    return Call("PullImage", request, IMAGE_SECONDS, lambda reply: values.image_of(reply.image))


def networks() -> Call[tuple[values.Network, ...]]:
    request = message("ListNetworksRequest")()
    return Call("ListNetworks", request, LOOK_SECONDS, lambda reply: tuple(map(values.network_of, reply.networks)))


def version() -> Call[values.Version]:
    return Call("Version", message("VersionRequest")(), LOOK_SECONDS, values.version_of)


def newest_event() -> Call[int]:
    """The number of the newest event."""
    return Call("Info", message("InfoRequest")(), LOOK_SECONDS, lambda reply: int(reply.seq))


def events(
    from_seq: int | None, since: datetime | None, until: datetime | None, filters: Sequence[str], *, follow: bool
) -> Call[Any]:
    request = message("EventsRequest")(
        from_seq=from_seq, since=_moment(since), until=_moment(until), filters=list(filters), no_follow=not follow
    )
    return Call("Events", request, None, lambda reply: reply)


def _container(reply: Any) -> values.Container:
    return values.container_of(reply.container)


def _nothing(_: Any) -> None:
    return None


def _waited(container: str, reply: Any) -> values.Exit:
    if not reply.HasField("exit"):
        raise NeverEnded(f"{container} is gone, and never ran")
    return values.exit_of(reply.exit)


def _moment(time: datetime | None) -> dict[str, int] | None:
    return None if time is None else values.moment(time)


def grace_of(seconds: int | None, spec: Mapping[str, Any]) -> int:
    return int(spec.get("stop_timeout_seconds", GRACE_SECONDS)) if seconds is None else seconds

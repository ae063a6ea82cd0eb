"""containerd's Sandbox service: a pod whose pause container is exitd's own, made, asked for and removed like a task.

A sandbox is a task that is a pod's pause container. Its members are the tasks made through the same relay, since
containerd gives all containers of a pod one. exitd sends no events of a sandbox: containerd itself publishes them.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Iterable

import structlog

from protos.containerd import sandbox_pb2 as pb
from protos.containerd import task_pb2, types_pb2
from shim.frozen import replace
from supervisor.containerd import making, sandbox, tasks
from supervisor.containerd.callers import Caller
from supervisor.containerd.service import SandboxPlace, TaskService
from supervisor.engine.ending import Ending
from supervisor.engine.node import Node
from supervisor.model.errors import Code, NoSuchContainer, ShimFailed
from supervisor.model.values import BUILTIN, LIVE, Container, Phase, Reason, Security, Spec
from supervisor.monitor import probe
from supervisor.runtime.oci.confine import confine
from supervisor.runtime.oci.seccomp import SeccompMachine
from supervisor.system import regular
from supervisor.ttrpc.faults import CallFailed

READY, NOT_READY = "SANDBOX_READY", "SANDBOX_NOTREADY"
MOST_FILE_BYTES = 1 << 20  # of the host's files that a pod gets a copy of

log = structlog.get_logger(__name__)


class Sandboxes:
    """Belongs to the node's event loop. Its methods raise CallFailed and ExitdError."""

    def __init__(
        self, node: Node, service: TaskService, ending: Ending, place: SandboxPlace, asides: making.Asides
    ) -> None:
        self._node = node
        self._service = service
        self._ending = ending
        self._place = place
        self._asides = asides

    # -- its life

    async def create(self, request: pb.CreateSandboxRequest, caller: Caller) -> pb.CreateSandboxResponse:
        id, bundle = request.sandbox_id, request.bundle_path

        async def spec_of() -> Spec:
            wanted = await self._prepare(request)
            given = task_pb2.CreateTaskRequest(id=id, bundle=bundle, rootfs=request.rootfs)
            spec = await making.spec_of(given, caller, self._asides)
            network = "none" if wanted.own_network else "host"
            return replace(spec, pod=wanted.pod, network=network)

        await self._service.made(id, bundle, caller, spec_of)
        return pb.CreateSandboxResponse()

    async def start(self, request: pb.StartSandboxRequest, caller: Caller) -> pb.StartSandboxResponse:
        c = await self._known(request.sandbox_id, caller)
        started = await self._service.start(task_pb2.StartRequest(id=request.sandbox_id), caller)
        return pb.StartSandboxResponse(pid=started.pid, created_at=tasks.timestamp(c.created_ns))

    async def stop(self, request: pb.StopSandboxRequest, caller: Caller) -> pb.StopSandboxResponse:
        """End the members, then the pause container. Repeatable. Raises CallFailed when there is no such sandbox."""
        c = await self._known(request.sandbox_id, caller)
        grace = request.timeout_secs or None
        by_policy = self._ending.by_policy
        await _all(by_policy(m.id, Reason.STOP, caller.by, grace) for m in self._node.containers.members(c.id))
        await by_policy(c.id, Reason.STOP, caller.by, grace)
        return pb.StopSandboxResponse()

    async def wait(self, request: pb.WaitSandboxRequest, caller: Caller) -> pb.WaitSandboxResponse:
        """Wait for as long as the caller's connection lives."""
        ended = await self._service.wait(task_pb2.WaitRequest(id=request.sandbox_id), caller)
        return pb.WaitSandboxResponse(exit_status=ended.exit_status, exited_at=ended.exited_at)

    async def shutdown(self, request: pb.ShutdownSandboxRequest, caller: Caller) -> pb.ShutdownSandboxResponse:
        """End and remove the sandbox and what is left in it. Repeatable; one that was never made is no error, since
        containerd asks for this also after a CreateSandbox that failed."""
        c = await self._service.settled(caller.namespace, request.sandbox_id)
        if c is not None and tasks.is_sandbox(c):
            await _all(self._service.remove(m, caller.by, "") for m in self._node.containers.members(c.id))
            if (now := self._node.containers.get(c.id)) is not None:
                await self._service.remove(now, caller.by, caller.key)
        return pb.ShutdownSandboxResponse()

    # -- questions

    async def platform(self, request: pb.PlatformRequest, caller: Caller) -> pb.PlatformResponse:
        os_, architecture, variant = self._place.platform
        return pb.PlatformResponse(platform=types_pb2.Platform(os=os_, architecture=architecture, variant=variant))

    async def status(self, request: pb.SandboxStatusRequest, caller: Caller) -> pb.SandboxStatusResponse:
        c = await self._looked_at(request.sandbox_id, caller)
        seen = tasks.look(c)
        return pb.SandboxStatusResponse(
            sandbox_id=request.sandbox_id,
            pid=seen.pid,
            state=READY if c.phase in (Phase.RUNNING, Phase.PAUSED) else NOT_READY,
            info={"info": json.dumps(_info(c, seen))} if request.verbose else {},
            created_at=tasks.timestamp(c.created_ns),
            exited_at=tasks.timestamp(seen.at_ns),
        )

    async def ping(self, request: pb.PingRequest, caller: Caller) -> pb.PingResponse:
        """Raises CallFailed unless the sandbox is there and its process has not ended."""
        c = await self._looked_at(request.sandbox_id, caller)
        if c.phase not in LIVE or self._node.is_ending(c):
            raise CallFailed(Code.FAILED_PRECONDITION, f"{request.sandbox_id}: the sandbox has ended")
        return pb.PingResponse()

    async def metrics(self, request: pb.SandboxMetricsRequest, caller: Caller) -> pb.SandboxMetricsResponse:
        """Of its pause container."""
        found = await self._service.stats(task_pb2.StatsRequest(id=request.sandbox_id), caller)
        at = tasks.timestamp(self._node.clock.now_ns())
        return pb.SandboxMetricsResponse(
            metrics=types_pb2.Metric(timestamp=at, id=request.sandbox_id, data=found.stats)
        )

    async def _known(self, id: str, caller: Caller) -> Container:
        """For a change: once it has been looked up after a daemon start."""
        return _checked(await self._service.settled(caller.namespace, id), id)

    async def _looked_at(self, id: str, caller: Caller) -> Container:
        """For a question: at once, or nearly."""
        return _checked(await self._service.looked_at(caller, id), id)

    # -- its bundle

    async def _prepare(self, request: pb.CreateSandboxRequest) -> sandbox.Sandbox:
        """Write the pause container's config.json, and what members are to see of the pod. A configuration that the
        bundle has already stays: a client's own, or that of a CreateSandbox which a crash has interrupted. Raises
        BadRequest, ShimFailed, TimedOut."""
        id, bundle = making.checked_id(request.sandbox_id, "a sandbox"), making.checked_bundle(request.bundle_path)
        wanted = sandbox.parse(id, request.netns_path, request.options if request.HasField("options") else None)
        if wanted.note:
            log.warning("option not understood", sandbox=id, note=wanted.note)
        what = f"writing the configuration of the sandbox {id}"
        try:
            await self._asides.bundles.run(what, lambda: _write(wanted, bundle, self._place.pause), bundle)
        except OSError as error:
            raise ShimFailed(f"{bundle}: {error.strerror}") from error
        return wanted


def _write(wanted: sandbox.Sandbox, bundle: str, pause: str) -> None:
    host = {name: _host_file(name) for name in sandbox.FILES}
    for name, text in sandbox.files(wanted, host).items():
        making.write(f"{bundle}/{making.POD_FILE}{name}", text.encode(), 0o644)
    if not os.path.lexists(f"{bundle}/config.json"):
        machine = SeccompMachine(os.uname().machine, probe.kernel())
        document = confine(sandbox.document(wanted, pause), Security(seccomp=BUILTIN), machine)
        making.write(f"{bundle}/config.json", json.dumps(document).encode())


def _host_file(name: str) -> str:
    """Return the text of a file of this machine's; empty if there is none, or none that fits."""
    if name == "hostname":
        return f"{os.uname().nodename}\n"
    try:
        data = regular.read(sandbox.FILES[name], most_bytes=MOST_FILE_BYTES + 1)
    except OSError:
        return ""
    return data.decode(errors="replace") if len(data) <= MOST_FILE_BYTES else ""


def _info(c: Container, seen: tasks.TaskLook) -> dict[str, object]:
    """Return what CRI shows when it is asked for more, under the names that it has for its own pause containers."""
    return {"pid": seen.pid, "processStatus": tasks.WORDS[seen.status], "exitd": {"id": c.id, "run": c.run}}


def _checked(c: Container | None, id: str) -> Container:
    if c is None or not tasks.is_there(c) or not tasks.is_sandbox(c):
        raise CallFailed(Code.NOT_FOUND, f"{id}: there is no such sandbox: not found")
    return c


async def _all(works: Iterable[Awaitable[object]]) -> None:
    """Do all at once, whatever becomes of each; then raise the first error. One that is gone is none."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, NoSuchContainer):
            raise result

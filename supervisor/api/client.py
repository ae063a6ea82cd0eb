"""exitctl's side of the API: every call by its name, over whichever transport. Whatever goes wrong is an ExitdError."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, Self

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.answers import Answer, AnswerSource, AnswerStream, Waiting
from supervisor.api.attachment import Attachment, Line
from supervisor.api.copying import CopyLine, copied
from supervisor.api.failures import REASONS as REASONS  # a client's errors are to be had here, too
from supervisor.api.failures import Unreachable as Unreachable
from supervisor.model import errors

DEFAULT_STATE = "/run/exitd"
CALL_SECONDS = 30.0  # a call that only looks
WORK_SECONDS = 120.0  # a call that has the runtime work
IMAGE_SECONDS = 3600.0  # a call that reads a whole image; the daemon's own limits come first
KILL_SECONDS = 60.0  # how long after the grace period an end by SIGKILL may take
DEFAULT_GRACE_SECONDS = 10
STATS_AT_ONCE = 1000  # ids in one request
SOCKET_PATH_LIMIT = 107  # sun_path, unix(7)


def socket_path(address: str | None, environment: Mapping[str, str]) -> str:
    """Return the daemon's socket: `address`, else EXITD_ADDRESS, else exitd.sock in EXITD_STATE, else the default's.

    Takes plain paths and gRPC's unix:PATH and unix:///PATH. Raises BadRequest for what cannot be a unix socket.
    """
    state = environment.get("EXITD_STATE") or DEFAULT_STATE
    text = address or environment.get("EXITD_ADDRESS") or os.path.join(state, "exitd.sock")
    scheme, colon, rest = text.partition(":")
    if colon and "/" not in scheme:
        if scheme != "unix":
            raise errors.BadRequest(f"the address {text!r} is no unix socket: give a path or unix:PATH")
        text = rest[2:] if rest.startswith("///") else rest
    path = os.path.abspath(text)
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise errors.BadRequest(
            f"the socket path {path} is longer than the {SOCKET_PATH_LIMIT} bytes a unix socket can have: "
            "choose a shorter state directory"
        )
    return path


class Transport(Protocol):
    """Carries the calls. Each method raises ExitdError."""

    def call(self, method: str, request: Any, seconds: float) -> Any:
        """Return the reply of a unary call, within `seconds`."""

    def stream(self, method: str, request: Any, seconds: float | None) -> AnswerSource:
        """Begin a call with many replies, and return them. `seconds` None: without a limit."""

    def wait(self, request: pb.WaitRequest) -> Answer:
        """Begin a Wait, and return its answer to come."""

    def attach(self, start: pb.AttachStart) -> Line:
        """Begin an Attach."""

    def copy_to(self, start: pb.CopyToStart) -> CopyLine:
        """Begin a CopyTo."""

    def close(self) -> None: ...


def ttrpc_beside(path: str) -> str | None:
    """Return the daemon's ttrpc socket for the address `path`; None where it has none. Where there is no socket at all,
    the ttrpc socket is returned, since a call over it fails soonest."""
    if path.endswith(".ttrpc"):
        return path
    directory, name = os.path.split(path)
    beside = os.path.join(directory, "exitd.ttrpc")
    return beside if name == "exitd.sock" and (os.path.exists(beside) or not os.path.exists(path)) else None


def answers(path: str, ttrpc: str | None = None) -> bool:
    """Return whether a daemon answers at this socket of gRPC's, or at that of ttrpc if there is one."""
    try:
        with Client(path, ttrpc) as client:
            client.version()
    except Unreachable:
        return False
    return True


class Client:
    """The way to the daemon. Use it as a context manager; every method raises ExitdError."""

    def __init__(self, path: str, ttrpc: str | None = None, *, most_seconds: float | None = None) -> None:
        """Call over gRPC on `path`, or over ttrpc where that socket is given: then grpc is not even imported.
        `most_seconds`: a limit of each unary call but Wait that comes before its own."""
        self.path = path
        self._most_seconds = most_seconds
        self._transport = _grpc(path) if ttrpc is None else _ttrpc(path, ttrpc)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def create(self, spec: pb.ContainerSpec, *, replace: bool = False) -> pb.Container:
        request = pb.CreateContainerRequest(spec=spec, replace=replace)
        reply: pb.CreateContainerReply = self._call("CreateContainer", request, WORK_SECONDS)
        return reply.container

    def start(self, container_id: str, *, prepare: bool = False) -> pb.Container:
        """Start it. `prepare`: only make the next run of one that has ended."""
        request = pb.StartRequest(id=container_id, prepare=prepare)
        reply: pb.StartReply = self._call("Start", request, WORK_SECONDS)
        return reply.container

    def stop(self, container_id: str, grace_seconds: int | None, signal: str = "") -> None:
        """`signal`: instead of its own stop signal; so in `restart`."""
        request = pb.StopRequest(id=container_id, timeout_seconds=grace_seconds, signal=signal)
        self._call("Stop", request, self._grace(container_id, grace_seconds) + KILL_SECONDS)

    def restart(self, container_id: str, grace_seconds: int | None, signal: str = "") -> None:
        request = pb.RestartRequest(id=container_id, timeout_seconds=grace_seconds, signal=signal)
        self._call("Restart", request, self._grace(container_id, grace_seconds) + KILL_SECONDS + WORK_SECONDS)

    def kill(self, container_id: str, signal: str, *, everyone: bool = False, exec_id: str = "") -> None:
        request = pb.KillRequest(id=container_id, signal=signal, all=everyone, exec_id=exec_id)
        self._call("Kill", request, CALL_SECONDS)

    def exec(self, container_id: str, spec: pb.ExecSpec) -> pb.Exec:
        """Begin an exec; it runs when this returns. With `spec.attach` its output waits for `attach`."""
        reply: pb.ExecReply = self._call("Exec", pb.ExecRequest(id=container_id, spec=spec), WORK_SECONDS)
        return reply.exec

    def rename(self, container_id: str, name: str) -> None:
        self._call("Rename", pb.RenameRequest(id=container_id, name=name), CALL_SECONDS)

    def update(self, request: pb.UpdateRequest) -> None:
        """Change limits and policy; what the request leaves open stays."""
        self._call("Update", request, WORK_SECONDS)

    def pause(self, container_id: str) -> None:
        self._call("Pause", pb.PauseRequest(id=container_id), WORK_SECONDS)

    def resume(self, container_id: str) -> None:
        self._call("Resume", pb.ResumeRequest(id=container_id), WORK_SECONDS)

    def remove(self, container_id: str, *, force: bool, volumes: bool = False) -> None:
        self._call("Remove", pb.RemoveRequest(id=container_id, force=force, volumes=volumes), WORK_SECONDS)

    def list(self, *, all_of_them: bool, filters: tuple[str, ...] = ()) -> tuple[pb.Container, ...]:
        reply: pb.ListReply = self._call("List", pb.ListRequest(all=all_of_them, filters=filters), CALL_SECONDS)
        return tuple(reply.containers)

    def inspect(self, container_id: str) -> pb.Container:
        reply: pb.InspectReply = self._call("Inspect", pb.InspectRequest(id=container_id), CALL_SECONDS)
        return reply.container

    def run_pod(self, spec: pb.ContainerSpec) -> pb.Pod:
        """Run a new pod. `spec` is its pause container's."""
        reply: pb.RunPodReply = self._call("RunPod", pb.RunPodRequest(spec=spec), WORK_SECONDS)
        return reply.pod

    def stop_pod(self, pod_id: str, grace_seconds: int | None = None) -> pb.Pod:
        pod = self.inspect_pod(pod_id)
        # The members together, and behind them the pause container.
        grace = max((_grace_of(each.spec, grace_seconds) for each in pod.members), default=0.0)
        grace += _grace_of(pod.pause.spec, grace_seconds)
        request = pb.StopPodRequest(id=pod.id, timeout_seconds=grace_seconds)
        reply: pb.StopPodReply = self._call("StopPod", request, grace + 2 * KILL_SECONDS)
        return reply.pod

    def remove_pod(self, pod_id: str, *, force: bool) -> None:
        self._call("RemovePod", pb.RemovePodRequest(id=pod_id, force=force), WORK_SECONDS)

    def pods(self, filters: tuple[str, ...] = ()) -> tuple[pb.Pod, ...]:
        reply: pb.ListPodsReply = self._call("ListPods", pb.ListPodsRequest(filters=filters), CALL_SECONDS)
        return tuple(reply.pods)

    def inspect_pod(self, pod_id: str) -> pb.Pod:
        reply: pb.InspectPodReply = self._call("InspectPod", pb.InspectPodRequest(id=pod_id), CALL_SECONDS)
        return reply.pod

    def load_image(self, word: str, name: str = "") -> tuple[pb.Image, ...]:
        request = pb.LoadImageRequest(word=word, name=name)
        reply: pb.LoadImageReply = self._call("LoadImage", request, IMAGE_SECONDS)
        return tuple(reply.images)

    def pull_image(self, word: str, *, if_missing: bool = False) -> pb.Image:
        request = pb.PullImageRequest(name=word, if_missing=if_missing)
        reply: pb.PullImageReply = self._call("PullImage", request, IMAGE_SECONDS)
        return reply.image

    def import_image(self, path: str, name: str = "") -> pb.Image:
        request = pb.ImportImageRequest(path=path, name=name)
        reply: pb.ImportImageReply = self._call("ImportImage", request, IMAGE_SECONDS)
        return reply.image

    def images(self) -> tuple[pb.Image, ...]:
        reply: pb.ListImagesReply = self._call("ListImages", pb.ListImagesRequest(), CALL_SECONDS)
        return tuple(reply.images)

    def remove_image(self, word: str) -> pb.RemoveImageReply:
        reply: pb.RemoveImageReply = self._call("RemoveImage", pb.RemoveImageRequest(word=word), WORK_SECONDS)
        return reply

    def inspect_image(self, word: str) -> pb.InspectImageReply:
        reply: pb.InspectImageReply = self._call("InspectImage", pb.InspectImageRequest(word=word), CALL_SECONDS)
        return reply

    def tag_image(self, word: str, name: str) -> pb.Image:
        reply: pb.TagImageReply = self._call("TagImage", pb.TagImageRequest(word=word, name=name), WORK_SECONDS)
        return reply.image

    def untag_image(self, word: str, names: Iterable[str] = ()) -> tuple[str, ...]:
        request = pb.UntagImageRequest(word=word, names=names)
        reply: pb.UntagImageReply = self._call("UntagImage", request, WORK_SECONDS)
        return tuple(reply.names)

    def save_images(self, words: Iterable[str]) -> Iterator[bytes]:
        """Yield the parts of one archive."""
        return (reply.data for reply in self._stream("SaveImages", pb.SaveImagesRequest(words=words), None))

    def prune_images(self, ids: Iterable[str], *, all_of_them: bool) -> pb.PruneImagesReply:
        request = pb.PruneImagesRequest(ids=ids, all=all_of_them)
        reply: pb.PruneImagesReply = self._call("PruneImages", request, WORK_SECONDS)
        return reply

    def commit(self, request: pb.CommitRequest) -> pb.Image:
        reply: pb.CommitReply = self._call("Commit", request, IMAGE_SECONDS)
        return reply.image

    def pids(self, container: str) -> tuple[int, ...]:
        """Return the pids of all its processes; none when it does not run."""
        reply: pb.PidsReply = self._call("Pids", pb.PidsRequest(id=container), CALL_SECONDS)
        return tuple(reply.pids)

    def stats(self, ids: Iterable[str] = ()) -> tuple[pb.ContainerStats, ...]:
        """Return what these containers use, all that run for none."""
        wanted, found = tuple(ids), list[pb.ContainerStats]()
        for first in range(0, len(wanted) or 1, STATS_AT_ONCE):
            request = pb.StatsRequest(ids=wanted[first : first + STATS_AT_ONCE])
            reply: pb.StatsReply = self._call("Stats", request, CALL_SECONDS)
            found += reply.containers
        return tuple(found)

    def run_healthcheck(self, container_id: str) -> pb.RunHealthcheckReply:
        """Run its health check now, within the limit of the check."""
        limit_ns = self.inspect(container_id).spec.health.timeout_ns
        request = pb.RunHealthcheckRequest(id=container_id)
        reply: pb.RunHealthcheckReply = self._call("RunHealthcheck", request, limit_ns / 1e9 + WORK_SECONDS)
        return reply

    def networks(self) -> pb.ListNetworksReply:
        reply: pb.ListNetworksReply = self._call("ListNetworks", pb.ListNetworksRequest(), CALL_SECONDS)
        return reply

    def prune_networks(self) -> pb.PruneNetworksReply:
        reply: pb.PruneNetworksReply = self._call("PruneNetworks", pb.PruneNetworksRequest(), WORK_SECONDS)
        return reply

    def create_volume(self, name: str) -> pb.Volume:
        reply: pb.CreateVolumeReply = self._call("CreateVolume", pb.CreateVolumeRequest(name=name), CALL_SECONDS)
        return reply.volume

    def volumes(self) -> tuple[pb.Volume, ...]:
        reply: pb.ListVolumesReply = self._call("ListVolumes", pb.ListVolumesRequest(), CALL_SECONDS)
        return tuple(reply.volumes)

    def remove_volume(self, name: str) -> None:
        self._call("RemoveVolume", pb.RemoveVolumeRequest(name=name), WORK_SECONDS)

    def shut_down_node(self, limit_seconds: int) -> pb.ShutDownNodeReply:
        """Stop all of exitd's own containers, because the host goes down."""
        request = pb.ShutDownNodeRequest(limit_seconds=limit_seconds)
        reply: pb.ShutDownNodeReply = self._call("ShutDownNode", request, limit_seconds + CALL_SECONDS)
        return reply

    def version(self) -> pb.VersionReply:
        reply: pb.VersionReply = self._call("Version", pb.VersionRequest(), CALL_SECONDS)
        return reply

    def info(self) -> pb.InfoReply:
        reply: pb.InfoReply = self._call("Info", pb.InfoRequest(), CALL_SECONDS)
        return reply

    def disk_usage(self, ids: Iterable[str] = (), *, images: bool = False) -> pb.DiskUsageReply:
        """Return what these containers take, all for none, and images if requested."""
        request = pb.DiskUsageRequest(ids=ids, images=images)
        reply: pb.DiskUsageReply = self._call("DiskUsage", request, CALL_SECONDS)
        return reply

    def metrics(self) -> str:
        """Return the page that Prometheus reads."""
        reply: pb.MetricsReply = self._call("Metrics", pb.MetricsRequest(), CALL_SECONDS)
        return reply.text

    def exits(self, request: pb.ExitsRequest) -> Iterator[pb.Exit]:
        return (reply.exit for reply in self._stream("Exits", request, WORK_SECONDS))

    def events(self, request: pb.EventsRequest) -> AnswerStream:
        """Yield events, for ever unless the request says otherwise."""
        return self._stream("Events", request, None)

    def watch(self, request: pb.WatchRequest) -> pb.WatchReply:
        """Watch a target, until `end_watch` or the end of the one process."""
        reply: pb.WatchReply = self._call("Watch", request, CALL_SECONDS)
        return reply

    def watches(self) -> tuple[pb.Watch, ...]:
        reply: pb.WatchesReply = self._call("Watches", pb.WatchesRequest(), CALL_SECONDS)
        return tuple(reply.watches)

    def end_watch(self, target: str) -> pb.Watch:
        reply: pb.EndWatchReply = self._call("EndWatch", pb.EndWatchRequest(target=target), CALL_SECONDS)
        return reply.watch

    def logs(self, request: pb.LogsRequest) -> AnswerStream:
        """Yield what is in the log; the call has begun when this returns. It follows for ever if the request says
        so."""
        return self._stream("Logs", request, None)

    def attach(
        self,
        container_id: str,
        *,
        exec_id: str = "",
        stdin: bool = True,
        stdout: bool = True,
        stderr: bool = True,
        lossless: bool = True,
        counted: bool = False,
        size: tuple[int, int] | None = None,
    ) -> Attachment:
        """Attach to the streams; attached when this returns. A created container can be attached to before its start.
        Raises WrongState once it has ended.

        `lossless` False: output that is not read in time is dropped and counted. `counted`: replies that say how much
        input was taken come in between. `size`: rows and columns, for a
        terminal.
        """
        start = pb.AttachStart(
            id=container_id,
            exec_id=exec_id,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            lossless=lossless,
            counted=counted,
            size=pb.Winsize(rows=size[0], cols=size[1]) if size else None,
        )
        return Attachment(self._transport.attach(start))

    def stat_path(self, container_id: str, path: str, *, follow: bool = False) -> pb.PathStat:
        """Raises NoSuchPath."""
        request = pb.StatPathRequest(id=container_id, path=path, follow=follow)
        reply: pb.StatPathReply = self._call("StatPath", request, WORK_SECONDS)
        return reply.stat

    def copy_from(self, container_id: str, path: str, *, follow: bool = False, name: str = "") -> Iterator[bytes]:
        """Yield the parts of a tar."""
        request = pb.CopyFromRequest(id=container_id, path=path, follow=follow, name=name)
        return (reply.data for reply in self._stream("CopyFrom", request, None))

    def export(self, container_id: str) -> Iterator[bytes]:
        """Yield the parts of a tar of the root file system."""
        return (reply.data for reply in self._stream("Export", pb.ExportRequest(id=container_id), None))

    def changes(self, container_id: str) -> Iterator[pb.Change]:
        """Yield what the container has added, changed and deleted."""
        replies = self._stream("Changes", pb.ChangesRequest(id=container_id), None)
        return (change for reply in replies for change in reply.changes)

    def copy_to(
        self, container_id: str, directory: str, parts: Iterable[bytes], *, keep_owner: bool = False
    ) -> pb.CopyDone:
        """Put a tar into a directory of the container."""
        start = pb.CopyToStart(id=container_id, directory=directory, keep_owner=keep_owner)
        return copied(self._transport.copy_to(start), parts)

    def resize(self, container_id: str, rows: int, cols: int, *, exec_id: str = "") -> None:
        """Set the size of the terminal. Raises WrongState when there is none."""
        size = pb.Winsize(rows=rows, cols=cols)
        self._call("ResizePty", pb.ResizePtyRequest(id=container_id, exec_id=exec_id, size=size), CALL_SECONDS)

    def close_stdin(self, container_id: str, *, exec_id: str = "") -> None:
        """Close the container's stdin, behind what others have sent. Raises WrongState with a terminal."""
        self._call("CloseStdin", pb.CloseStdinRequest(id=container_id, exec_id=exec_id), CALL_SECONDS)

    def reopen_log(self, container_id: str) -> None:
        self._call("ReopenLog", pb.ReopenLogRequest(id=container_id), CALL_SECONDS)

    def begin_wait(self, container_id: str, *, condition: str = "exited", run: int = 0, exec_id: str = "") -> Waiting:
        """Begin a Wait, so that no exit slips by; `Waiting.result` blocks for the answer."""
        request = pb.WaitRequest(id=container_id, condition=condition, run=run, exec_id=exec_id)
        return Waiting(self._transport.wait(request))

    def _grace(self, container_id: str, seconds: int | None) -> float:
        return seconds if seconds is not None else _grace_of(self.inspect(container_id).spec, None)

    def _call(self, method: str, request: object, seconds: float) -> Any:
        limit = seconds if self._most_seconds is None else min(seconds, self._most_seconds)
        return self._transport.call(method, request, limit)

    def _stream(self, method: str, request: object, seconds: float | None) -> AnswerStream:
        return AnswerStream(self._transport.stream(method, request, seconds))


def _grpc(path: str) -> Transport:
    from supervisor.api.overgrpc import GrpcTransport  # most of the time of a short command would go into this import

    return GrpcTransport(path)


def _ttrpc(path: str, ttrpc: str) -> Transport:
    from supervisor.api.overttrpc import TtrpcTransport

    return TtrpcTransport(ttrpc, path, otherwise=_grpc)


def _grace_of(spec: pb.ContainerSpec, seconds: int | None) -> float:
    if seconds is not None:
        return seconds
    return spec.stop_timeout_seconds if spec.HasField("stop_timeout_seconds") else DEFAULT_GRACE_SECONDS

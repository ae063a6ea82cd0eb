"""The methods of service Exitd, in groups: messages in, the owners of the state asked, messages out. Knows nothing of
gRPC. Each method is `name(request, by)`; one with a stream of requests gets all of them."""

import platform
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Protocol, cast

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import replace
from supervisor.api import changes, execrequests, replies, requests
from supervisor.api.calls import Methods
from supervisor.api.checks import result_message
from supervisor.api.files import archive
from supervisor.api.mounts import volume_of
from supervisor.api.networks import network_message, pruned_message, stuck_message
from supervisor.api.streams import Streams
from supervisor.api.table import EXITD
from supervisor.api.values import clean
from supervisor.images.facts import Image, PrunedImages, RemovedImage
from supervisor.model.errors import BadRequest
from supervisor.model.execs import Exec, ExecSpec
from supervisor.model.health import ProbeResult
from supervisor.model.limits import Change
from supervisor.model.networks import NetworkView, PrunedNetworks, StuckAttachment
from supervisor.model.values import By, Container, Exit, HealthStatus, Spec
from supervisor.model.views import DiskUsage, Info, PodView, StoppedForShutdown, UsageView, View
from supervisor.model.volumes import Volume
from supervisor.store import events
from supervisor.streams import logs
from supervisor.system.inotify import Inotify
from supervisor.system.listening import check_room

API = "exitd.v1"
LOG_REPLY_BYTES = 64 * 1024
MOST_IDS = 4096  # of one Stats


class OperationCalls(Protocol):
    """What the API asks of the owner of all state. Every method raises named ExitdErrors only."""

    async def create(self, spec: Spec, by: By, *, replaces: bool = False) -> Container:
        """Make it. `replaces`: in the place of exitd's own container of that name, running or not, if there is one."""

    async def start(self, id: str, by: By, prepare: bool = False) -> Container:
        """Start it. `prepare`: only make the next run of one that has ended."""

    async def stop(self, id: str, timeout_seconds: int | None, by: By, signal: int = 0) -> Container:
        """Stop it. `signal`: instead of its own stop signal; so in `restart`."""

    async def kill(self, id: str, signal: int, everyone: bool, by: By) -> None: ...
    async def restart(self, id: str, timeout_seconds: int | None, by: By, signal: int = 0) -> Container: ...
    async def pause(self, id: str, by: By) -> None: ...
    async def resume(self, id: str, by: By) -> None: ...
    async def remove(self, id: str, force: bool, by: By, *, volumes: bool = False) -> None: ...
    def listing(self, all: bool, filters: tuple[str, ...]) -> tuple[list[View], int]:
        """Return the containers, and the sequence number from which on to watch."""

    async def inspect(self, id: str) -> View: ...
    async def pids(self, id: str) -> tuple[int, ...]: ...
    async def run_check(self, id: str) -> tuple[ProbeResult, HealthStatus]:
        """Run its health check now. Return the result, and the container's status with it."""

    async def wait(self, id: str, condition: str, run: int) -> Exit | None:
        """Wait for an exit. `run` 0: the current run. Return None for a container removed without ever having run."""

    def subscribe(
        self,
        from_seq: int | None,
        since_ns: int | None,
        until_ns: int | None,
        filters: tuple[str, ...],
        follow: bool,
    ) -> AsyncIterator[events.Item]:
        """Yield events. An async generator function: not awaited, closed as soon as the peer goes away."""

    def exits(self, since_ns: int | None, unknown: bool, id: str) -> AsyncIterator[Exit]:
        """Yield the ledger. An async generator function, as `subscribe`. An empty `id`: all containers."""

    async def log_source(self, id: str) -> logs.LogSource:
        """Return where its log is."""


class ChangeCalls(Protocol):
    """As OperationCalls, for changes of containers."""

    async def rename(self, id: str, name: str, by: By) -> None: ...
    async def update(self, id: str, change: Change, by: By) -> None: ...


class Pods(Protocol):
    """As OperationCalls, for pods. A pod is named by its pause container: id, the beginning of one, or its name."""

    async def run_pod(self, spec: Spec, by: By) -> PodView: ...
    async def stop_pod(self, id: str, timeout_seconds: int | None, by: By) -> PodView: ...
    async def remove_pod(self, id: str, force: bool, by: By) -> None: ...
    def pods(self, filters: tuple[str, ...]) -> tuple[list[PodView], int]:
        """Return the pods, and the sequence number from which on to watch."""

    async def inspect_pod(self, id: str) -> PodView: ...
    async def wait_members(self, id: str) -> tuple[Exit, ...]:
        """Return the exits of all members, once they have ended for good, or the pod has; none for what is no pod."""


class ExecCalls(Protocol):
    """As OperationCalls, for execs: `id` is the container's, an exec has its own beside it."""

    async def exec(self, id: str, spec: ExecSpec, by: By) -> Exec:
        """Begin an exec. It runs when this returns."""

    async def kill_exec(self, id: str, exec_id: str, signal: int, everyone: bool, by: By) -> None: ...
    async def wait_exec(self, id: str, exec_id: str, run: int) -> Exit:
        """Return the exit. `run` 0: of whichever run has the exec."""


class ImageCalls(Protocol):
    """As OperationCalls, for the image store."""

    async def load_image(self, word: str, name: str) -> tuple[Image, ...]: ...
    async def pull_image(self, name: str, if_missing: bool) -> Image: ...
    async def import_image(self, path: str, name: str) -> Image: ...
    async def list_images(self) -> tuple[tuple[Image, tuple[str, ...]], ...]:
        """Return the images, each with the ids of the containers that stand on it."""

    async def remove_image(self, word: str) -> RemovedImage: ...
    async def inspect_image(self, word: str) -> tuple[Image, tuple[str, ...], bytes]:
        """Return the image, the ids of the containers that stand on it, and its configuration."""

    async def tag_image(self, word: str, name: str) -> Image: ...
    async def untag_image(self, word: str, names: tuple[str, ...]) -> tuple[str, ...]: ...
    async def prune_images(self, ids: tuple[str, ...], all: bool) -> PrunedImages: ...
    def save_images(self, words: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Yield an archive. An async generator function, as `subscribe`."""


class VolumeCalls(Protocol):
    """As OperationCalls, for named volumes."""

    async def create_volume(self, name: str) -> Volume: ...
    async def list_volumes(self) -> tuple[tuple[Volume, tuple[str, ...]], ...]:
        """Return the volumes, each with the ids of the containers that mount it."""

    async def remove_volume(self, name: str) -> None: ...


class UsageCalls(Protocol):
    """As OperationCalls, for what is taken of the disk."""

    async def disk_usage(self, ids: tuple[str, ...], images: bool) -> DiskUsage:
        """Return the usage of these containers, all for none, and of images if requested."""


class StatsCalls(Protocol):
    """As OperationCalls, for what is used at this moment."""

    async def stats(self, ids: tuple[str, ...]) -> tuple[UsageView, ...]:
        """Return what these containers use, all that run for none."""


class ShutdownCalls(Protocol):
    """As OperationCalls, for the end of the host."""

    async def shut_down_node(self, limit_seconds: float) -> StoppedForShutdown: ...


class ContainerServicer:
    """Answers the calls about containers and their execs."""

    def __init__(self, operations: OperationCalls, pods: Pods, execs: ExecCalls, streams: Streams) -> None:
        self._operations = operations
        self._pods = pods
        self._execs = execs
        self._streams = streams

    async def CreateContainer(self, request: pb.CreateContainerRequest, by: By) -> pb.CreateContainerReply:
        spec = requests.spec_of(request.spec)
        if request.replace:
            requests.refuse_nameless(spec)
        container = await self._operations.create(spec, by, replaces=request.replace)
        return pb.CreateContainerReply(container=replies.container_message(View(container)))

    async def Start(self, request: pb.StartRequest, by: By) -> pb.StartReply:
        container = await self._operations.start(requests.id_of(request.id), by, request.prepare)
        return pb.StartReply(container=replies.container_message(View(container)))

    async def Stop(self, request: pb.StopRequest, by: By) -> pb.StopReply:
        id, signal = requests.id_of(request.id), requests.stop_signal_of(request)
        container = await self._operations.stop(id, requests.timeout_of(request), by, signal)
        return pb.StopReply(container=replies.container_message(View(container)))

    async def Kill(self, request: pb.KillRequest, by: By) -> pb.KillReply:
        signal = requests.signal_of(request.signal or "SIGKILL")
        id = requests.id_of(request.id)
        if request.exec_id:
            await self._execs.kill_exec(id, requests.id_of(request.exec_id, "exec_id"), signal, request.all, by)
        else:
            await self._operations.kill(id, signal, request.all, by)
        return pb.KillReply()

    async def Restart(self, request: pb.RestartRequest, by: By) -> pb.RestartReply:
        id, signal = requests.id_of(request.id), requests.stop_signal_of(request)
        container = await self._operations.restart(id, requests.timeout_of(request), by, signal)
        return pb.RestartReply(container=replies.container_message(View(container)))

    async def Pause(self, request: pb.PauseRequest, by: By) -> pb.PauseReply:
        await self._operations.pause(requests.id_of(request.id), by)
        return pb.PauseReply()

    async def Resume(self, request: pb.ResumeRequest, by: By) -> pb.ResumeReply:
        await self._operations.resume(requests.id_of(request.id), by)
        return pb.ResumeReply()

    async def Remove(self, request: pb.RemoveRequest, by: By) -> pb.RemoveReply:
        await self._operations.remove(requests.id_of(request.id), request.force, by, volumes=request.volumes)
        return pb.RemoveReply()

    async def List(self, request: pb.ListRequest, by: By) -> pb.ListReply:
        views, seq = self._operations.listing(request.all, tuple(request.filters))
        return pb.ListReply(containers=map(replies.container_message, views), seq=seq)

    async def Inspect(self, request: pb.InspectRequest, by: By) -> pb.InspectReply:
        view = await self._operations.inspect(requests.id_of(request.id))
        view = replace(view, streams=await self._streams.counters(view.container))
        return pb.InspectReply(container=replies.container_message(view))

    async def Pids(self, request: pb.PidsRequest, by: By) -> pb.PidsReply:
        return pb.PidsReply(pids=await self._operations.pids(requests.id_of(request.id)))

    async def RunHealthcheck(self, request: pb.RunHealthcheckRequest, by: By) -> pb.RunHealthcheckReply:
        result, status = await self._operations.run_check(requests.id_of(request.id))
        return pb.RunHealthcheckReply(result=result_message(result), status=status)

    async def Wait(self, request: pb.WaitRequest, by: By) -> pb.WaitReply:
        condition, run = requests.condition_of(request.condition), requests.number_of(request.run, "run")
        id = requests.id_of(request.id)
        if request.exec_id:
            requests.only_exited(condition)
            ended_exec = await self._execs.wait_exec(id, requests.id_of(request.exec_id, "exec_id"), run)
            return pb.WaitReply(exit=replies.exit_message(ended_exec))
        members = () if run or condition != "exited" else await self._pods.wait_members(id)
        if members:
            return pb.WaitReply(members=[replies.exit_message(each) for each in members])
        ended = await self._operations.wait(id, condition, run)
        return pb.WaitReply(exit=replies.exit_message(ended) if ended else None)

    async def Exec(self, request: pb.ExecRequest, by: By) -> pb.ExecReply:
        made = await self._execs.exec(requests.id_of(request.id), execrequests.spec_of(request.spec), by)
        return pb.ExecReply(exec=replies.exec_message(made))


class ChangeServicer:
    """Answers the calls that change what a container is called, and what it may use."""

    def __init__(self, changing: ChangeCalls) -> None:
        self._changing = changing

    async def Rename(self, request: pb.RenameRequest, by: By) -> pb.RenameReply:
        await self._changing.rename(requests.id_of(request.id), requests.new_name_of(request.name), by)
        return pb.RenameReply()

    async def Update(self, request: pb.UpdateRequest, by: By) -> pb.UpdateReply:
        requests.refuse_nul(request)
        await self._changing.update(requests.id_of(request.id), changes.change_of(request), by)
        return pb.UpdateReply()


class RecordServicer:
    """Answers the calls about what has happened: events, exits, logs."""

    def __init__(self, operations: OperationCalls, changes: Inotify) -> None:
        """`changes` reports lines that are added to a log."""
        self._operations = operations
        self._changes = changes
        self._logs = logs.LogReading()

    async def Events(self, request: pb.EventsRequest, by: By) -> AsyncGenerator[pb.EventsReply, None]:
        wanted = self._operations.subscribe(
            requests.number_of(request.from_seq, "from_seq") if request.HasField("from_seq") else None,
            requests.time_of(request.since, "since") if request.HasField("since") else None,
            requests.time_of(request.until, "until") if request.HasField("until") else None,
            tuple(request.filters),
            not request.no_follow,
        )
        async with aclosing(cast("AsyncGenerator[events.Item, None]", wanted)):
            async for item in wanted:
                yield replies.events_message(item)

    async def Exits(self, request: pb.ExitsRequest, by: By) -> AsyncGenerator[pb.ExitsReply, None]:
        since = requests.time_of(request.since, "since") if request.HasField("since") else None
        ledger = self._operations.exits(since, request.unknown, requests.ledger_id_of(request.id) if request.id else "")
        async with aclosing(cast("AsyncGenerator[Exit, None]", ledger)):
            async for ended in ledger:
                yield pb.ExitsReply(exit=replies.exit_message(ended))

    async def Logs(self, request: pb.LogsRequest, by: By) -> AsyncGenerator[pb.LogsReply, None]:
        check_room()
        source = await self._operations.log_source(requests.id_of(request.id))
        run = requests.number_of(request.run, "run") or requests.number_of(request.after.run, "after.run") or source.run
        wanted = requests.log_wanted(request, source.whole)
        if not request.follow:
            await source.settled(run)  # an end is reported before what still lies in the pipe is in the log
            async with aclosing(self._logs.read(wanted)) as portions:
                async for items in portions:
                    for reply in _log_replies(items, run):
                        yield reply
            return
        complete = logs.by_then(source.complete(run), wanted.until_ns)
        async with source.listening(), aclosing(self._logs.follow(wanted, complete, self._changes)) as followed:
            async for portion in followed:
                for reply in _log_replies(portion, run):
                    yield reply


def _log_replies(portion: logs.Portion, run: int) -> Iterator[pb.LogsReply]:
    if isinstance(portion, logs.LogPosition):
        yield replies.position_message(portion, run)
    else:
        yield from replies.log_messages(portion, LOG_REPLY_BYTES)


class DaemonServicer:
    """Answers the calls about the daemon itself."""

    def __init__(self, info: Callable[[], Info], metrics: Callable[[], Awaitable[str]]) -> None:
        """`metrics` returns the page of metrics as it is now."""
        self._info = info
        self._metrics = metrics

    async def Version(self, request: pb.VersionRequest, by: By) -> pb.VersionReply:
        info = self._info()
        return pb.VersionReply(version=info.version, api=API, python=platform.python_version())

    async def Info(self, request: pb.InfoRequest, by: By) -> pb.InfoReply:
        return replies.info_message(self._info())

    async def Metrics(self, request: pb.MetricsRequest, by: By) -> pb.MetricsReply:
        return pb.MetricsReply(text=clean(await self._metrics()))


class PodServicer:
    """Answers the calls about pods."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    async def RunPod(self, request: pb.RunPodRequest, by: By) -> pb.RunPodReply:
        return pb.RunPodReply(pod=replies.pod_message(await self._pods.run_pod(requests.spec_of(request.spec), by)))

    async def StopPod(self, request: pb.StopPodRequest, by: By) -> pb.StopPodReply:
        view = await self._pods.stop_pod(requests.id_of(request.id), requests.timeout_of(request), by)
        return pb.StopPodReply(pod=replies.pod_message(view))

    async def RemovePod(self, request: pb.RemovePodRequest, by: By) -> pb.RemovePodReply:
        await self._pods.remove_pod(requests.id_of(request.id), request.force, by)
        return pb.RemovePodReply()

    async def ListPods(self, request: pb.ListPodsRequest, by: By) -> pb.ListPodsReply:
        views, seq = self._pods.pods(tuple(request.filters))
        return pb.ListPodsReply(pods=[replies.pod_message(view) for view in views], seq=seq)

    async def InspectPod(self, request: pb.InspectPodRequest, by: By) -> pb.InspectPodReply:
        view = await self._pods.inspect_pod(requests.id_of(request.id))
        return pb.InspectPodReply(pod=replies.pod_message(view))


class ImageServicer:
    """Answers the calls about the image store."""

    def __init__(self, images: ImageCalls) -> None:
        self._images = images

    async def LoadImage(self, request: pb.LoadImageRequest, by: By) -> pb.LoadImageReply:
        requests.refuse_nul(request)
        images = await self._images.load_image(request.word, request.name)
        return pb.LoadImageReply(images=map(replies.image_message, images))

    async def PullImage(self, request: pb.PullImageRequest, by: By) -> pb.PullImageReply:
        requests.refuse_nul(request)
        image = await self._images.pull_image(request.name, request.if_missing)
        return pb.PullImageReply(image=replies.image_message(image))

    async def ImportImage(self, request: pb.ImportImageRequest, by: By) -> pb.ImportImageReply:
        requests.refuse_nul(request)
        image = await self._images.import_image(request.path, request.name)
        return pb.ImportImageReply(image=replies.image_message(image))

    async def ListImages(self, request: pb.ListImagesRequest, by: By) -> pb.ListImagesReply:
        images = await self._images.list_images()
        return pb.ListImagesReply(images=[replies.image_message(image, users) for image, users in images])

    async def RemoveImage(self, request: pb.RemoveImageRequest, by: By) -> pb.RemoveImageReply:
        requests.refuse_nul(request)
        removed = await self._images.remove_image(request.word)
        return pb.RemoveImageReply(names=removed.names, ids=removed.ids)

    async def InspectImage(self, request: pb.InspectImageRequest, by: By) -> pb.InspectImageReply:
        requests.refuse_nul(request)
        image, users, config = await self._images.inspect_image(request.word)
        layers = [pb.ImageLayer(diff_id=layer.diff_id, size_bytes=layer.size_bytes) for layer in image.layers]
        return pb.InspectImageReply(image=replies.image_message(image, users), config=config, layers=layers)

    async def TagImage(self, request: pb.TagImageRequest, by: By) -> pb.TagImageReply:
        requests.refuse_nul(request)
        return pb.TagImageReply(image=replies.image_message(await self._images.tag_image(request.word, request.name)))

    async def UntagImage(self, request: pb.UntagImageRequest, by: By) -> pb.UntagImageReply:
        requests.refuse_nul(request)
        return pb.UntagImageReply(names=await self._images.untag_image(request.word, tuple(request.names)))

    async def SaveImages(self, request: pb.SaveImagesRequest, by: By) -> AsyncGenerator[pb.ArchiveReply, None]:
        check_room()
        requests.refuse_nul(request)
        if not request.words:
            raise BadRequest("words: which images?", field="words")
        async with aclosing(archive(self._images.save_images(tuple(request.words)))) as parts:
            async for part in parts:
                yield part

    async def PruneImages(self, request: pb.PruneImagesRequest, by: By) -> pb.PruneImagesReply:
        requests.refuse_nul(request)
        found = await self._images.prune_images(tuple(request.ids), request.all)
        removed = found.removed
        return pb.PruneImagesReply(names=removed.names, ids=removed.ids, reclaimed_bytes=found.reclaimed_bytes)


class NetworkCalls(Protocol):
    """As OperationCalls, for networks."""

    async def list_networks(self) -> tuple[NetworkView, ...]: ...
    def stuck(self) -> tuple[StuckAttachment, ...]: ...
    async def prune_networks(self) -> PrunedNetworks: ...


class NetworkServicer:
    """Answers the calls about networks."""

    def __init__(self, networks: NetworkCalls) -> None:
        self._networks = networks

    async def ListNetworks(self, request: pb.ListNetworksRequest, by: By) -> pb.ListNetworksReply:
        found = await self._networks.list_networks()
        stuck = map(stuck_message, self._networks.stuck())
        return pb.ListNetworksReply(networks=[network_message(each) for each in found], stuck=stuck)

    async def PruneNetworks(self, request: pb.PruneNetworksRequest, by: By) -> pb.PruneNetworksReply:
        return pruned_message(await self._networks.prune_networks())


class VolumeServicer:
    """Answers the calls about named volumes."""

    def __init__(self, volumes: VolumeCalls) -> None:
        self._volumes = volumes

    async def CreateVolume(self, request: pb.CreateVolumeRequest, by: By) -> pb.CreateVolumeReply:
        made = await self._volumes.create_volume(volume_of("name", request.name))
        return pb.CreateVolumeReply(volume=replies.volume_message(made))

    async def ListVolumes(self, request: pb.ListVolumesRequest, by: By) -> pb.ListVolumesReply:
        found = await self._volumes.list_volumes()
        return pb.ListVolumesReply(volumes=[replies.volume_message(each, users) for each, users in found])

    async def RemoveVolume(self, request: pb.RemoveVolumeRequest, by: By) -> pb.RemoveVolumeReply:
        await self._volumes.remove_volume(volume_of("name", request.name))
        return pb.RemoveVolumeReply()


class UsageServicer:
    """Answers the call about the disk."""

    def __init__(self, usage: UsageCalls) -> None:
        self._usage = usage

    async def DiskUsage(self, request: pb.DiskUsageRequest, by: By) -> pb.DiskUsageReply:
        return replies.usage_message(await self._usage.disk_usage(tuple(request.ids), request.images))


class StatsServicer:
    """Answers the call about what containers use now."""

    def __init__(self, stats: StatsCalls) -> None:
        self._stats = stats

    async def Stats(self, request: pb.StatsRequest, by: By) -> pb.StatsReply:
        if len(request.ids) > MOST_IDS:
            raise BadRequest(f"ids: {len(request.ids)} of them; at most {MOST_IDS} in one request", field="ids")
        ids = tuple(map(requests.id_of, request.ids))
        return pb.StatsReply(containers=map(replies.stats_message, await self._stats.stats(ids)))


class ShutdownServicer:
    """Answers the call at the end of the host."""

    def __init__(self, shutdown: ShutdownCalls) -> None:
        self._shutdown = shutdown

    async def ShutDownNode(self, request: pb.ShutDownNodeRequest, by: By) -> pb.ShutDownNodeReply:
        stopped = await self._shutdown.shut_down_node(requests.shutdown_limit_of(request))
        return pb.ShutDownNodeReply(ended=stopped.ended, left=stopped.left)


def methods_of(*groups: object) -> Methods:
    """Return each method of the service table, of the one group that has it. Raises KeyError, a bug: of none or two."""
    found = {}
    for name in (method.name for method in EXITD.methods):
        those = [getattr(group, name) for group in groups if hasattr(group, name)]
        if len(those) != 1:
            raise KeyError(f"{name} is a method of {len(those)} groups")
        found[name] = those[0]
    return found

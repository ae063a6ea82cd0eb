"""The calls about pods, images, files, volumes, networks, watches and the daemon itself, as values; as calls.py."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from exitd_client import objects, values
from exitd_client.calls import IMAGE_SECONDS, KILL_SECONDS, LOOK_SECONDS, WORK_SECONDS, Call, grace_of
from exitd_client.messages import message
from exitd_client.objects import read
from exitd_client.spec import PodSpec, container_spec, part

CHUNK_BYTES = 64 << 10


def pids(container: str) -> Call[tuple[int, ...]]:
    return Call("Pids", message("PidsRequest")(id=container), LOOK_SECONDS, lambda reply: tuple(reply.pids))


def healthcheck(container: str, spec: Mapping[str, Any]) -> Call[objects.HealthResult]:
    """`spec` is the container's, which has the limit of the check."""
    limit = int(spec.get("health", {}).get("timeout_ns", 0)) / values.SECOND_NS
    return Call(
        "RunHealthcheck",
        message("RunHealthcheckRequest")(id=container),
        limit + WORK_SECONDS,
        lambda reply: read(objects.HealthResult, reply.result, status=reply.status),
    )


def resize(container: str, rows: int, cols: int, exec_id: str) -> Call[None]:
    size = message("Winsize")(rows=rows, cols=cols)
    return _done("ResizePty", LOOK_SECONDS, id=container, exec_id=exec_id, size=size)


def close_stdin(container: str, exec_id: str) -> Call[None]:
    return _done("CloseStdin", LOOK_SECONDS, id=container, exec_id=exec_id)


def reopen_log(container: str) -> Call[None]:
    return _done("ReopenLog", LOOK_SECONDS, id=container)


def run_pod(pod: PodSpec | None, image: str, given: Mapping[str, Any]) -> Call[objects.Pod]:
    spec = container_spec(image, (), given)
    if pod is not None:
        spec.pod.CopyFrom(part(pod))
    return Call("RunPod", message("RunPodRequest")(spec=spec), WORK_SECONDS, _pod)


def stop_pod(pod: objects.Pod, grace_seconds: int | None) -> Call[objects.Pod]:
    """Its members are stopped together, and then its pause container."""
    grace = max((grace_of(grace_seconds, each.spec) for each in pod.members), default=0)
    limit = grace + grace_of(grace_seconds, pod.pause.spec) + 2 * KILL_SECONDS
    return Call("StopPod", message("StopPodRequest")(id=pod.id, timeout_seconds=grace_seconds), limit, _pod)


def rm_pod(pod: str, *, force: bool) -> Call[None]:
    return _done("RemovePod", WORK_SECONDS, id=pod, force=force)


def pods(filters: Sequence[str]) -> Call[tuple[objects.Pod, ...]]:
    request = message("ListPodsRequest")(filters=list(filters))
    return Call("ListPods", request, LOOK_SECONDS, lambda reply: tuple(map(objects.pod_of, reply.pods)))


def inspect_pod(pod: str) -> Call[objects.Pod]:
    return Call("InspectPod", message("InspectPodRequest")(id=pod), LOOK_SECONDS, _pod)


def load(word: str, name: str) -> Call[tuple[values.Image, ...]]:
    request = message("LoadImageRequest")(word=word, name=name)
    return Call("LoadImage", request, IMAGE_SECONDS, lambda reply: tuple(map(values.image_of, reply.images)))


def import_image(path: str, name: str) -> Call[values.Image]:
    return Call("ImportImage", message("ImportImageRequest")(path=path, name=name), IMAGE_SECONDS, _image)


def rm_image(image: str) -> Call[objects.RemovedImages]:
    request = message("RemoveImageRequest")(word=image)
    return Call("RemoveImage", request, WORK_SECONDS, lambda reply: read(objects.RemovedImages, reply))


def inspect_image(image: str) -> Call[objects.ImageDetails]:
    request = message("InspectImageRequest")(word=image)
    return Call("InspectImage", request, LOOK_SECONDS, lambda reply: read(objects.ImageDetails, reply))


def tag(image: str, name: str) -> Call[values.Image]:
    return Call("TagImage", message("TagImageRequest")(word=image, name=name), WORK_SECONDS, _image)


def untag(image: str, names: Sequence[str]) -> Call[tuple[str, ...]]:
    request = message("UntagImageRequest")(word=image, names=list(names))
    return Call("UntagImage", request, WORK_SECONDS, lambda reply: tuple(reply.names))


def save(images: Sequence[str]) -> Call[bytes]:
    return Call("SaveImages", message("SaveImagesRequest")(words=list(images)), None, _data)


def prune_images(ids: Sequence[str], *, all: bool) -> Call[objects.PrunedImages]:
    request = message("PruneImagesRequest")(ids=list(ids), all=all)
    return Call("PruneImages", request, WORK_SECONDS, lambda reply: read(objects.PrunedImages, reply))


def commit(
    container: str, name: str, changes: Sequence[str], comment: str, author: str, *, pause: bool
) -> Call[values.Image]:
    request = message("CommitRequest")(
        id=container, name=name, changes=list(changes), message=comment, author=author, no_pause=not pause
    )
    return Call("Commit", request, IMAGE_SECONDS, _image)


def stat_path(container: str, path: str, *, follow: bool) -> Call[objects.PathStat]:
    request = message("StatPathRequest")(id=container, path=path, follow=follow)
    return Call("StatPath", request, WORK_SECONDS, lambda reply: read(objects.PathStat, reply.stat))


def copy_from(container: str, path: str, name: str, *, follow: bool) -> Call[bytes]:
    request = message("CopyFromRequest")(id=container, path=path, follow=follow, name=name)
    return Call("CopyFrom", request, None, _data)


def export(container: str) -> Call[bytes]:
    return Call("Export", message("ExportRequest")(id=container), None, _data)


def changes(container: str) -> Call[tuple[objects.Change, ...]]:
    request = message("ChangesRequest")(id=container)
    return Call("Changes", request, None, lambda reply: tuple(read(objects.Change, each) for each in reply.changes))


class CopyRequests:
    """The requests of a CopyTo: the start, the parts of one tar, and the end. An error of the caller's own parts is
    kept, because gRPC does not hand it on: it ends the call, and what has been made until then stays."""

    def __init__(self, container: str, directory: str, tar: bytes | Iterable[bytes], *, keep_owner: bool) -> None:
        self._start = message("CopyToStart")(id=container, directory=directory, keep_owner=keep_owner)
        self._tar = tar
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        make = message("CopyToRequest")
        yield make(start=self._start)
        try:
            for each in (self._tar,) if isinstance(self._tar, bytes) else self._tar:
                yield from (make(data=each[at : at + CHUNK_BYTES]) for at in range(0, len(each), CHUNK_BYTES))
        except Exception as error:
            self.error = error
            raise
        yield make(finished=True)


def copied(reply: Any) -> objects.CopyDone | None:
    """Return what a reply of CopyTo says of the end; None for one that is not the last."""
    return read(objects.CopyDone, reply.done) if reply.HasField("done") else None


def create_volume(name: str) -> Call[objects.Volume]:
    request = message("CreateVolumeRequest")(name=name)
    return Call("CreateVolume", request, LOOK_SECONDS, lambda reply: read(objects.Volume, reply.volume))


def volumes() -> Call[tuple[objects.Volume, ...]]:
    request = message("ListVolumesRequest")()
    return Call(
        "ListVolumes", request, LOOK_SECONDS, lambda reply: tuple(read(objects.Volume, each) for each in reply.volumes)
    )


def rm_volume(name: str) -> Call[None]:
    return _done("RemoveVolume", WORK_SECONDS, name=name)


def stuck_networks() -> Call[tuple[objects.StuckAttachment, ...]]:
    return Call("ListNetworks", message("ListNetworksRequest")(), LOOK_SECONDS, lambda reply: _stuck(reply.stuck))


def prune_networks() -> Call[objects.PrunedNetworks]:
    request = message("PruneNetworksRequest")()
    return Call("PruneNetworks", request, WORK_SECONDS, lambda reply: read(objects.PrunedNetworks, reply))


def watch(pid: int, containerd: str, runc_root: str, *, node: bool) -> Call[objects.Watch]:
    request = message("WatchRequest")(pid=pid, containerd=containerd, runc_root=runc_root, node=node)
    return Call("Watch", request, WORK_SECONDS, _watch)


def watches() -> Call[tuple[objects.Watch, ...]]:
    request = message("WatchesRequest")()
    return Call(
        "Watches", request, LOOK_SECONDS, lambda reply: tuple(read(objects.Watch, each) for each in reply.watches)
    )


def end_watch(target: str) -> Call[objects.Watch]:
    return Call("EndWatch", message("EndWatchRequest")(target=target), WORK_SECONDS, _watch)


def shut_down_node(limit_seconds: int) -> Call[objects.ShutDown]:
    request = message("ShutDownNodeRequest")(limit_seconds=limit_seconds)
    return Call("ShutDownNode", request, limit_seconds + LOOK_SECONDS, lambda reply: read(objects.ShutDown, reply))


def info() -> Call[objects.Info]:
    return Call("Info", message("InfoRequest")(), LOOK_SECONDS, lambda reply: read(objects.Info, reply))


def metrics() -> Call[str]:
    return Call("Metrics", message("MetricsRequest")(), LOOK_SECONDS, lambda reply: str(reply.text))


def disk_usage(ids: Sequence[str], *, images: bool) -> Call[objects.DiskUsage]:
    request = message("DiskUsageRequest")(ids=list(ids), images=images)
    return Call("DiskUsage", request, LOOK_SECONDS, lambda reply: read(objects.DiskUsage, reply))


def _done(method: str, seconds: float, **words: Any) -> Call[None]:
    return Call(method, message(f"{method}Request")(**words), seconds, lambda _: None)


def _pod(reply: Any) -> objects.Pod:
    return objects.pod_of(reply.pod)


def _image(reply: Any) -> values.Image:
    return values.image_of(reply.image)


def _data(reply: Any) -> bytes:
    return bytes(reply.data)


def _watch(reply: Any) -> objects.Watch:
    return read(objects.Watch, reply.watch)


def _stuck(found: Any) -> tuple[objects.StuckAttachment, ...]:
    return tuple(read(objects.StuckAttachment, each) for each in found)

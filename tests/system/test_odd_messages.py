"""Whatever a client sends: each call is answered, or refused by a named error with its details, and nothing of it
stays. What the daemon had before it has afterwards."""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no py.typed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from protos.exitd.v1 import images_pb2
from supervisor.api import details
from supervisor.api.client import Client
from supervisor.api.rpc import Stub
from supervisor.api.table import EXITD, classes
from supervisor.model.errors import ExitdError, NoSuchContainer, NoSuchWatch
from tests.supervisor.api.odd_messages import TEXTS, message_of
from tests.system import daemons, lives
from tests.system.daemons import Daemon, left, remove_all
from tests.system.waits import LIMIT_SECONDS, SCALE, scaled, until

NOT_SENT = {
    "ShutDownNode": "ends all containers, and no other one begins until exitd is started again",
    "PullImage": "asks registries on the network, for minutes",
}
# They wait for what does not come: so long, in seconds.
WAITING = {
    "Wait": 0.2,
    "Stats": 0.2,
    "CopyTo": 2.0,
    "CopyFrom": 5.0,
    "Export": 5.0,
    "Changes": 5.0,
    "Events": 0.2,
    "Exits": 5.0,
    "Logs": 0.2,
    "Attach": 0.2,
}
STREAMING = {method.name for method in EXITD.methods if method.server_streaming}
SENT = [method for method in EXITD.methods if method.name not in NOT_SENT]
LIVES = "trap 'exit 3' TERM; while :; do sleep 0.05; done"
some = settings(
    max_examples=scaled(500, least=10),
    derandomize=SCALE < 1,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)


@dataclass
class World:
    """A daemon with one of each thing that a request can name."""

    daemon: Daemon
    client: Client
    stub: Stub
    directory: pathlib.Path
    id: str = ""
    exec_id: str = ""
    pod_id: str = ""

    def settle(self) -> None:
        """All that a request has made, begun or ended is as before."""
        for container in self.client.list(all_of_them=True):
            is_kept = container.id in (self.id, self.pod_id) and container.phase == pb.PHASE_RUNNING
            if not is_kept or container.spec.sandbox:
                with contextlib.suppress(NoSuchContainer):
                    self.client.remove(container.id, force=True)
        known = {container.id for container in self.client.list(all_of_them=True)}
        if self.pod_id not in known:
            pod = pb.ContainerSpec(rootfs="/", args=["sh", "-c", LIVES], name="pod", pod=pb.PodSpec())
            self.pod_id = self.client.run_pod(pod).id
        if self.id not in known or not self.client.inspect(self.id).execs:
            self._begin()
        for volume in self.stub.ListVolumes(pb.ListVolumesRequest()).volumes:
            self.stub.RemoveVolume(pb.RemoveVolumeRequest(name=volume.name))

    def _begin(self) -> None:
        """Anew, for its last signal may not have ended it yet."""
        with contextlib.suppress(ExitdError):
            self.client.remove("up", force=True)
        self.id = lives.up(self.client, "sh", "-c", LIVES, name="up").id
        self.exec_id = self.client.exec(self.id, pb.ExecSpec(args=["sleep", "1000"])).id

    def has(self) -> set[str]:
        """What there is, by name."""
        volumes = self.stub.ListVolumes(pb.ListVolumesRequest()).volumes
        watches = [watch.target for watch in self.client.watches()]
        images = self.stub.ListImages(images_pb2.ListImagesRequest()).images
        return {
            *(container.id for container in self.client.list(all_of_them=True)),
            *(volume.name for volume in volumes),
            *(image.id for image in images),
            *watches,
        }

    def words(self) -> list[str]:
        """What may name a thing, or a file that is to be read: the same number of them each time."""
        files = [str(self.directory / name) for name in ("fifo", "directory", "loop", "empty", "noise", "missing")]
        names = [self.id, self.id[:8], "up", self.exec_id, self.pod_id, "pod", "/dev/zero", "id=up", "image"]
        return [*TEXTS, *names, *files]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("odd")
    os.mkfifo(directory / "fifo")
    (directory / "directory").mkdir()
    (directory / "loop").symlink_to(directory / "loop")
    (directory / "empty").touch()
    (directory / "noise").write_bytes(bytes(range(256)) * 64)
    with daemons.daemon() as daemon, daemon.client() as client, daemons.stub(daemon) as stub:
        made = World(daemon, client, stub, directory)
        daemon.warm(client)
        made.stub.Version(pb.VersionRequest())  # its connection stays
        before = left(daemon)
        yield made
        remove_all(client)
        until(lambda: left(daemon) == before, f"left behind: {left(daemon)}, not {before}")


def refused(call: Any, name: str) -> bool:
    """Whether it was: it came to an end as a call may."""
    try:
        replies = call()
        for _ in replies if name in STREAMING else ():
            pass
    except grpc.RpcError as error:
        code = error.code()
        if name in WAITING and code is grpc.StatusCode.DEADLINE_EXCEEDED and not _packed(error):
            return False
        what = f"{name}: {code}: {str(error.details())[:500]}"
        assert code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE), what
        (packed,) = status_pb2.Status.FromString(_packed(error)).details
        info = error_details_pb2.ErrorInfo()
        assert packed.Unpack(info) and info.reason and info.reason != ExitdError.reason, what
        assert error.details() and "Traceback" not in str(error.details()), what
        return True
    return False


def _packed(error: Any) -> bytes:
    return next((value for key, value in error.trailing_metadata() or () if key == details.KEY), b"")


@pytest.mark.parametrize("method", SENT, ids=[method.name for method in SENT])
def test_every_call_with_odd_fields_is_answered_or_refused_by_name(world: World, method: Any) -> None:
    @some
    @given(st.data())
    def send(data: st.DataObject) -> None:
        world.settle()
        request = data.draw(message_of(classes(method)[0], texts=world.words()))
        if "spec" in method.input_type.fields_by_name and data.draw(st.booleans(), "that could be"):
            request.spec.args[:] = ["true"]
        if isinstance(request, pb.CreateContainerRequest | pb.RunPodRequest) and request.spec.args == ["true"]:
            for field in ("bundle", "image"):
                request.spec.ClearField(field)
            request.spec.rootfs = "/"
        asked = iter([request]) if method.client_streaming else request
        seconds = WAITING.get(method.name, 2 * LIMIT_SECONDS)
        before = world.has()
        if refused(lambda: getattr(world.stub, method.name)(asked, timeout=seconds), method.name):
            until(lambda: world.has() == before, f"not as before: {world.has() ^ before}")
        for watch in world.client.watches():
            with contextlib.suppress(NoSuchWatch):  # one that the watch of the node has found ends with that
                world.client.end_watch(watch.target)

    send()
    assert world.client.version()


def test_what_is_not_sent_exists() -> None:
    assert NOT_SENT.keys() | WAITING.keys() <= {method.name for method in EXITD.methods}

"""What a request for a container becomes, step by step, before it is one."""

from dataclasses import replace
from typing import cast

import pytest

from supervisor.api.logspecs import LEFT_OPEN
from supervisor.config.settings import CgroupDriver, Config, RuntimeEntry
from supervisor.engine.admission import Admission, with_storage
from supervisor.engine.containers import Containers
from supervisor.engine.imageservice import ImageService
from supervisor.images.facts import ImageDefaults, Resolved
from supervisor.model.errors import BadRequest, NoSuchImage, RuntimeMissing, WrongState
from supervisor.model.storage import LEFT_OPEN as STORAGE_LEFT_OPEN
from supervisor.model.storage import Storage, StorageKind
from supervisor.model.values import Container, HealthSpec, LogDriver, LogSpec, Phase, Pod, Spec
from tests.supervisor.fakes import in_loop

ID = "0123456789abcdef" * 4
CONFIG = Config(
    default_runtime="r",
    cgroup_driver=CgroupDriver.CGROUPFS,
    log_driver=LogDriver.JSON_FILE,
    runtimes=(RuntimeEntry("r", path="/bin/true", options=("--x",)), RuntimeEntry("none", path="/no/such")),
)
OPEN = Spec(name="", image="box", runtime="", network="", cwd="", stop_signal=0, log=LEFT_OPEN)
BOX = Resolved(("/layer",), ImageDefaults(cmd=("sh",), workdir="w", user="1", stop_signal="SIGINT"), "sha256:1", "box")


class Store:
    """Of images: has one, and notes what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def look_up(self, spec: Spec) -> Resolved:
        self.calls.append(f"look_up {spec.image}")
        if spec.image != "box":
            raise NoSuchImage(f"no image {spec.image}")
        return BOX

    async def hold(self, spec: Spec, container_id: str) -> None:
        self.calls.append(f"hold {spec.image_id} {container_id}")


async def admitted(spec: Spec, store: Store, *there: Container) -> Spec:
    containers = Containers()
    for each in there:
        containers[each.id] = each
    return await Admission(containers, cast(ImageService, store), lambda: CONFIG).admit(spec, ID)


@in_loop
async def test_nothing_is_left_open() -> None:
    store = Store()
    spec = await admitted(OPEN, store)
    assert (spec.name, spec.network, spec.log) == (ID[:12], "none", LogSpec(LogDriver.JSON_FILE, "", 10 << 20, 5))
    assert (spec.runtime, spec.runtime_path, spec.runtime_options) == ("r", "/bin/true", ("--x",))
    assert (spec.args, spec.cwd, spec.user, spec.stop_signal) == (("sh",), "/w", "1", 2)
    assert (spec.image_id, spec.layers, spec.systemd_cgroup) == ("sha256:1", ("/layer",), False)
    assert store.calls == ["look_up box", f"hold sha256:1 {ID}"]


DISK, TMPFS = Storage(StorageKind.DISK), Storage(StorageKind.TMPFS, 65_536)
IN_MEMORY = Config(storage=StorageKind.TMPFS)


@pytest.mark.parametrize(
    ("asked", "config", "refusal", "settled"),
    [
        (STORAGE_LEFT_OPEN, CONFIG, "", DISK),
        (STORAGE_LEFT_OPEN, IN_MEMORY, "", Storage()),
        (STORAGE_LEFT_OPEN, CONFIG, "an overlay", Storage()),
        (DISK, IN_MEMORY, "", DISK),
        (TMPFS, CONFIG, "an overlay", TMPFS),
    ],
)
def test_the_place_of_the_layer_is_the_callers_or_the_nodes(
    asked: Storage, config: Config, refusal: str, settled: Storage
) -> None:
    assert with_storage(replace(OPEN, storage=asked), config, refusal).storage == settled


def test_a_layer_on_disk_is_refused_with_the_cure_where_there_can_be_none() -> None:
    with pytest.raises(WrongState, match="storage disk: an overlay; elsewhere"):
        with_storage(replace(OPEN, storage=DISK), CONFIG, "an overlay; elsewhere")
    assert with_storage(Spec("", bundle="/b", storage=STORAGE_LEFT_OPEN), CONFIG, "").storage == Storage()


@in_loop
async def test_a_member_has_from_its_pod_what_a_pod_has_in_common() -> None:
    pod = Pod(log_directory="/")
    pause = Container("f" * 64, replace(OPEN, name="p", runtime="r", network="host", pod=pod), Phase.RUNNING, 1, 0)
    log = replace(LEFT_OPEN, path="member.log")
    spec = await admitted(replace(OPEN, sandbox="p", log=log), Store(), pause)
    assert (spec.sandbox, spec.network, spec.hostname, spec.log.path) == ("f" * 64, "host", "f" * 12, "/member.log")


@pytest.mark.parametrize(
    ("of_pod", "asked", "found"),
    [
        ("pods", "", "pod"),
        ("pods", "pod", "pod"),
        ("pods", "pods", "pod"),
        ("pods", "none", None),
        ("pods", "host", None),
        ("none", "none", "pod"),
        ("", "none", "pod"),
        ("none", "host", None),
        ("none", "pods", None),
        ("host", "", "host"),
        ("host", "pod", "host"),
        ("host", "host", "host"),
        ("host", "none", None),
    ],
)
@in_loop
async def test_a_member_gets_its_pods_network_or_a_refusal_and_never_another_than_it_asked_for(
    of_pod: str, asked: str, found: str | None
) -> None:
    pause = Container("f" * 64, replace(OPEN, name="p", runtime="r", network=of_pod, pod=Pod()), Phase.RUNNING, 1, 0)
    member = replace(OPEN, sandbox="p", network=asked)
    if found is None:
        with pytest.raises(BadRequest, match=f"network {asked}: .* and p has {of_pod}; leave it out"):
            await admitted(member, Store(), pause)
    else:
        assert (await admitted(member, Store(), pause)).network == found


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (replace(OPEN, network="pod"), BadRequest),
        (replace(OPEN, runtime="none"), RuntimeMissing),
        (replace(OPEN, log=replace(LEFT_OPEN, path="relative.log")), BadRequest),
        (replace(OPEN, log=replace(LEFT_OPEN, path="/taken.log")), WrongState),
    ],
    ids=["place", "runtime", "log", "shared log"],
)
@in_loop
async def test_no_image_is_looked_for_when_the_request_is_refused(refused: Spec, error: type[Exception]) -> None:
    store, other = Store(), Container("a", replace(OPEN, name="a", log=LogSpec(path="/taken.log")), Phase.RUNNING, 1, 0)
    with pytest.raises(error):
        await admitted(refused, store, other)
    assert store.calls == []


@pytest.mark.parametrize(
    ("refused", "error"),
    [(replace(OPEN, image="none"), NoSuchImage), (replace(OPEN, health=HealthSpec(retries=1)), BadRequest)],
    ids=["no image", "a check without a command"],
)
@in_loop
async def test_an_image_is_held_for_nobody_who_is_refused(refused: Spec, error: type[Exception]) -> None:
    store = Store()
    with pytest.raises(error):
        await admitted(refused, store)
    assert [call.partition(" ")[0] for call in store.calls] == ["look_up"]


@in_loop
async def test_the_hosts_ipc_namespace_is_for_single_containers_and_for_whole_pods() -> None:
    assert (await admitted(replace(OPEN, ipc="host", pod=Pod()), Store())).ipc == "host"
    assert (await admitted(replace(OPEN, ipc="host"), Store())).ipc == "host"


@in_loop
async def test_a_member_is_in_its_pods_ipc_namespace_whatever_it_says() -> None:
    def pause(ipc: str) -> Container:
        return Container("a" * 64, Spec("pod", network="none", ipc=ipc, pod=Pod()), Phase.RUNNING, 1, 1)

    member = replace(OPEN, sandbox="a" * 64)
    for ipc in ("own", "host"):
        assert (await admitted(member, Store(), pause(ipc))).ipc == ipc
    assert (await admitted(replace(member, ipc="host"), Store(), pause("host"))).ipc == "host"
    with pytest.raises(
        BadRequest, match="ipc host: the ipc namespace of a member is its pod's, and pod has one of its"
    ):
        await admitted(replace(member, ipc="host"), Store(), pause("own"))

"""Members join the namespaces they were given descriptors of, under real runtimes; nothing of that stays behind."""

import errno
import os
import pathlib
import signal
from collections.abc import Callable, Iterator, Sequence

import pytest

from shim import launch, plan, programs
from tests.system import pods
from tests.system.keepers import Keeper, Node, Run
from tests.system.pods import ALL, FILES, SHARED, Pod, namespace, namespace_descriptors
from tests.system.processes import open_files
from tests.system.waits import wait_readable

SHIM = str(programs.find("exitd-shim"))
UNNAMED_MAX, FDS_MAX = 9, 13  # of one request, without and with names of slots: shim/keeper/slots.c
LOOPBACK_UP = "0x9"  # IFF_UP and IFF_LOOPBACK


@pytest.fixture(params=["runc", "crun"])
def pod(node: Node, keeper: Keeper, request: pytest.FixtureRequest) -> Iterator[Pod]:
    with pods.pod(node, keeper, request.param) as made:
        yield made


@pytest.fixture
def runc_pod(node: Node, keeper: Keeper) -> Iterator[Pod]:
    with pods.pod(node, keeper) as made:
        yield made


def links_left(pod: Pod, id: str) -> list[str]:
    return [path for path, _ in pod.links(id, ALL) if os.path.lexists(path)]


def joined(pod: Pod, run: Run) -> set[str]:
    """Whose first process it is, by its kinds: those that are the pod's own."""
    return {kind for kind in FILES if namespace(run.created.pid, kind) == os.readlink(f"/proc/self/fd/{pod.fds[kind]}")}


@pytest.mark.parametrize("kinds", [("network",), SHARED, ALL, ("pid", "uts", "ipc", "network")])
def test_a_member_is_in_the_namespaces_its_links_named_and_in_no_others(pod: Pod, kinds: Sequence[str]) -> None:
    member = pod.member("member", kinds, "/bin/sh", "-c", "echo up; exec sleep 1000")
    assert links_left(pod, "member") == []
    member.start()
    member.wait_output()
    assert joined(pod, member) == set(kinds)
    for pid in (member.created.pid, member.shim_pid, pod.keeper.process.pid):
        assert namespace_descriptors(pid) == []
    pods.kill(member)
    pod.finish(member)


def test_the_code_of_a_member_is_its_own_and_the_pause_goes_on(pod: Pod) -> None:
    for code in (0, 43, 137):
        member = pod.member("member", ALL, "/bin/sh", "-c", f"exit {code}")
        member.start()
        assert wait_readable(member.shim_pidfd)
        written = member.record()
        assert written is not None and (written.code, written.pid) == (code, member.created.pid)
        pod.finish(member)
    assert not pod.pause.ended(0)


def test_the_first_process_may_be_dead_before_its_namespaces_are_joined(pod: Pod) -> None:
    """The descriptors keep them; by its pid they would be gone, or a stranger's."""
    pod.end_pause()
    assert pod.pause.ended(0)
    member = pod.member("member", SHARED, "/bin/sleep", "1000")
    member.start()
    assert joined(pod, member) == set(SHARED)
    pods.kill(member)
    pod.finish(member)


def test_a_pid_namespace_whose_first_process_is_dead_cannot_be_joined_and_the_runtime_says_so(pod: Pod) -> None:
    pod.end_pause()
    member = pod.member("member", ALL, "/bin/sleep", "1000")
    assert (member.failed.stage, member.failed.errno) == ("runtime", errno.ECHILD)
    assert links_left(pod, "member") == []
    pod.finish(member)


def test_loopback_is_up_in_a_pods_own_network(pod: Pod) -> None:
    member = pod.member("member", SHARED, "/bin/cat", "/sys/class/net/lo/flags")
    member.start()
    assert wait_readable(member.shim_pidfd)
    assert member.output() == f"{LOOPBACK_UP}\n".encode()
    pod.finish(member)


def test_whoever_execs_into_a_member_is_in_the_same_namespaces(pod: Pod) -> None:
    member = pod.member("member", ALL, "/bin/sleep", "1000")
    member.start()
    told = member.runtime_command("exec", "member", "/bin/readlink", *(f"/proc/self/ns/{FILES[kind]}" for kind in ALL))
    assert told.stdout.decode().split() == [os.readlink(f"/proc/self/fd/{pod.fds[kind]}") for kind in ALL], told
    pods.kill(member)
    pod.finish(member)


OBSTACLES: dict[str, Callable[[pathlib.Path], object]] = {
    "a link that leads nowhere": lambda path: path.symlink_to("/nowhere"),
    "a link to another namespace": lambda path: path.symlink_to("/proc/self/ns/net"),
    "a file": lambda path: path.touch(),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_an_earlier_run_left_in_a_links_place_is_replaced(runc_pod: Pod, obstacle: str) -> None:
    for path, _ in runc_pod.links("member", SHARED):
        OBSTACLES[obstacle](pathlib.Path(path))
    member = runc_pod.member("member", SHARED, "/bin/sleep", "1000")
    assert joined(runc_pod, member) == set(SHARED) and links_left(runc_pod, "member") == []
    pods.kill(member)
    runc_pod.finish(member)


def begun(pod: Pod, create: str, joins: Sequence[str], sent: Sequence[int]) -> Run:
    """A shim whose plan names `joins`, and which got the descriptors `sent`; it has failed when this returns."""
    run = pod.keeper.run_directory("member")
    (run.directory / "plan").write_bytes(plan.encode(plan.Plan("member", 1, (create,), (create,), join=tuple(joins))))
    pod.keeper.spawn(run, SHIM, adopt=False, joins=sent)
    assert wait_readable(run.shim_pidfd)
    return run


def refused(pod: Pod, joins: Sequence[str], sent: Sequence[int]) -> tuple[str, int]:
    """The stage at which it stopped, and the errno."""
    called = pod.node.directory / "called"
    run = begun(pod, pod.node.script(f": >{called}; exit 1"), joins, sent)
    assert not called.exists(), "the runtime was called"
    pod.finish(run)
    return run.failed.stage, run.failed.errno


def test_without_what_the_plan_names_nothing_is_created(runc_pod: Pod) -> None:
    (network, fd), (ipc, other) = runc_pod.links("member", ("network", "ipc"))
    directory = pathlib.Path(network).parent
    with open("/dev/null") as file:
        assert refused(runc_pod, (network, ipc), [fd]) == ("join", errno.EBADF)
        assert refused(runc_pod, (network, ipc), [fd, file.fileno()]) == ("join", errno.EINVAL)
    assert refused(runc_pod, (network, f"{directory}/no/such/place"), [fd, other]) == ("join", errno.ENOENT)
    assert refused(runc_pod, (network, "/" + "x" * 300), [fd, other]) == ("join", errno.ENAMETOOLONG)
    pathlib.Path(ipc).mkdir()
    assert refused(runc_pod, (network, ipc), [fd, other]) == ("join", errno.EISDIR)
    assert os.listdir(directory) == ["ipc"]


def test_a_create_that_fails_takes_its_links_away(pod: Pod) -> None:
    looked = pod.node.directory / "looked"
    script = pod.node.script(f"readlink {' '.join(path for path, _ in pod.links('member', SHARED))} >{looked}; exit 1")
    member = pod.member("member", SHARED, "/bin/true", create=script)
    assert member.failed.stage == "runtime"
    assert looked.read_text().split() == [f"/proc/{member.shim_pid}/fd/{slot}" for slot in (8, 9, 10)]
    assert links_left(pod, "member") == []
    pod.finish(member)


def test_the_runtime_inherits_no_namespace_and_what_the_plan_does_not_name_is_closed(runc_pod: Pod) -> None:
    mine, parents = runc_pod.node.directory / "mine", runc_pod.node.directory / "parents"
    script = runc_pod.node.script(f"readlink /proc/$$/fd/* >{mine}; readlink /proc/$PPID/fd/* >{parents}; exit 1")
    links = [path for path, _ in runc_pod.links("member", SHARED)]
    member = begun(runc_pod, script, links, [runc_pod.fds[kind] for kind in ALL])
    assert member.failed.stage == "runtime"
    assert not [word for word in mine.read_text().split() if pods.NAMESPACE.fullmatch(word)]
    held = {word for word in parents.read_text().split() if pods.NAMESPACE.fullmatch(word)}
    assert held == {os.readlink(f"/proc/self/fd/{runc_pod.fds[kind]}") for kind in SHARED}
    runc_pod.finish(member)


def test_a_replacement_joins_nothing_whatever_it_is_given(runc_pod: Pod) -> None:
    member = runc_pod.member("member", SHARED, "/bin/sh", "-c", "echo up; exec sleep 1000")
    member.kill_shim()
    keeper, ours = runc_pod.keeper, list(runc_pod.fds.values())
    keeper.spawn(member, SHIM, adopt=True, joins=[*ours, *ours])
    member.start()
    member.wait_output()
    assert namespace_descriptors(member.shim_pid) == [] and links_left(runc_pod, "member") == []
    assert namespace_descriptors(keeper.process.pid) == []
    signal.pidfd_send_signal(member.created.pidfd, signal.SIGKILL)
    assert wait_readable(member.shim_pidfd)
    keeper.settle()
    assert [entry.signal for entry in keeper.entries()] == [signal.SIGKILL]
    runc_pod.finish(member)


@pytest.mark.parametrize("count", [0, 2, 3, 4, UNNAMED_MAX + 1, FDS_MAX, FDS_MAX + 1, FDS_MAX + 8])
def test_a_request_with_another_number_of_descriptors_is_refused(node: Node, keeper: Keeper, count: int) -> None:
    files, number = open_files(keeper.process.pid), errno.EMSGSIZE if count > FDS_MAX else errno.EINVAL
    for program in ("/nowhere/exitd-shim", SHIM):
        assert asked(keeper, program, count) == number
    assert open_files(keeper.process.pid) == files
    assert keeper.ask("exitd-list", ("at", 0)).kind == "exitd-ok"


@pytest.mark.parametrize("count", [1, 5, 6, 7, 8, 9])
def test_the_descriptors_of_a_refused_spawn_are_closed_by_the_keeper(node: Node, keeper: Keeper, count: int) -> None:
    files = open_files(keeper.process.pid)
    assert asked(keeper, "/nowhere/exitd-shim", count) == errno.ENOENT
    assert open_files(keeper.process.pid) == files


def asked(keeper: Keeper, program: str, count: int) -> int:
    """The errno with which the keeper refuses to spawn."""
    request = launch.spawn_request("box", 1, "", str(keeper.state), program, adopt=False)
    assert keeper.socket is not None
    with open("/proc/self/ns/net") as file, pytest.raises(launch.KeeperRefused) as caught:
        launch.ask(keeper.socket, request, [file.fileno()] * count)
    keeper.settle()
    return caught.value.number


def test_a_known_run_is_refused_with_all_its_descriptors(runc_pod: Pod) -> None:
    keeper = runc_pod.keeper
    files = open_files(keeper.process.pid)
    request = launch.spawn_request("pause", 1, "", str(keeper.last.directory), SHIM, adopt=False)
    assert keeper.socket is not None
    with open("/proc/self/ns/net") as file, pytest.raises(launch.KeeperRefused) as caught:
        launch.ask(keeper.socket, request, [file.fileno()] * UNNAMED_MAX)
    assert caught.value.number == errno.EEXIST
    keeper.settle()
    assert open_files(keeper.process.pid) == files

"""The relay as a program: what `start` makes, and how it ends."""

import fcntl
import os
import pathlib
import select
import signal
import socket
import subprocess

import pytest
from google.protobuf.any_pb2 import Any

from protos.containerd import bootstrap_pb2
from shim import native, programs
from tests.shim.relaywords import (
    BYE,
    C1,
    LEAVE,
    PID,
    REQUEST,
    RESPONSE,
    SOON,
    Frame,
    call,
    of_task,
    text,
)  # fmt: skip
from tests.system.processes import killed, open_files
from tests.system.relay import LIMIT_SECONDS, SOCKETS, Bundle, Relays, chain

GROUP = "io.kubernetes.cri.sandbox-id"
ASKED_WITHIN = 60.0  # shim/relay/daemon.h: IDLE_MS


# -- start


def test_start_prints_the_address_alone_and_leaves_a_small_process_of_its_own_behind(relays: Relays) -> None:
    bundle = relays.bundle("c1")
    address = relays.start(bundle)
    assert address == bundle.address == f"unix://{relays.socket('c1')}"
    (pid,) = relays.living()
    assert relays.connect(address).relay() == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    ours = int(pathlib.Path("/proc/self/oom_score_adj").read_text())
    assert int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text()) == min(ours + 1, 1000)
    assert {open_files(pid)[fd] for fd in range(3)} == {"/dev/null"}
    assert os.getsid(pid) == pid and relays.socket("c1").stat().st_mode & 0o777 == 0o600
    assert native.process_stat(pid)[1] != os.getpid()


def test_containers_of_one_group_share_a_relay_and_others_do_not(relays: Relays) -> None:
    first, member = relays.bundle("pause", **{GROUP: "pod"}), relays.bundle("app", **{GROUP: "pod"})
    other = relays.bundle("lone")
    assert relays.start(first) == relays.start(member) == first.address == member.address
    assert relays.start(other) != first.address
    assert len(relays.living()) == 2


def test_directories_that_the_relay_makes_do_not_depend_on_containerds_umask(relays: Relays) -> None:
    inside = relays.start_on_a_new_host(relays.bundle("c1"))
    modes = {path: (inside / path).stat().st_mode & 0o7777 for path in ("run/containerd", "run/containerd/s")}
    assert modes == {"run/containerd": 0o711, "run/containerd/s": 0o700}


def test_a_sandboxs_bundle_has_no_configuration_and_is_of_the_group_that_its_members_name(relays: Relays) -> None:
    sandbox, member = relays.bundle("pod"), relays.bundle("app", **{GROUP: "pod"})
    (sandbox.directory / "config.json").unlink()
    assert relays.start(sandbox) == relays.start(member) == f"unix://{relays.socket('pod')}"
    (pid,) = relays.living()
    assert relays.connect(sandbox.address).relay() == pid


def test_a_configuration_that_cannot_be_read_is_no_missing_one(relays: Relays) -> None:
    bundle = relays.bundle("c1")
    (bundle.directory / "config.json").unlink()
    (bundle.directory / "config.json").mkdir()
    said, _ = (done := relays.begin(bundle)).communicate(timeout=LIMIT_SECONDS)
    assert done.returncode == 1 and b"config.json of the bundle" in said and relays.living() == []


PARAMS = bootstrap_pb2.BootstrapParams(instance_id="c1", namespace="ns", containerd_binary="/usr/bin/containerd")


def told_on_stdin(relays: Relays, bundle: Bundle, params: bytes, *words: str) -> tuple[int, bytes]:
    """`start` without flags and environment but these: exit status and output."""
    done = subprocess.run(
        [relays.program, *words, "start"],
        cwd=bundle.directory,
        env={"EXITD_STATE": str(relays.state)},
        input=params,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def test_what_the_command_line_does_not_say_is_read_from_stdin(relays: Relays) -> None:
    """As containerd since 2.3 writes it there, beside the flags that it still gives."""
    bundle, exitd = relays.bundle("c1"), relays.exitd()
    params = bootstrap_pb2.BootstrapParams()
    params.CopyFrom(PARAMS)
    params.containerd_grpc_address, params.containerd_ttrpc_address = relays.containerd, "/events.sock"
    assert told_on_stdin(relays, bundle, params.SerializeToString()) == (0, f"unix://{relays.socket('c1')}\n".encode())
    client = relays.connect(bundle.address)
    client.ask(1, "Wait", of_task("c1"))
    _, hello = exitd.greeted()
    assert (hello.get("namespace"), hello.get("address")) == ("ns", "/events.sock")
    killed(hello.number("pid"), signal.SIGKILL)


@pytest.mark.parametrize(
    "params",
    [
        b"",
        b"\xff\xff",
        PARAMS.SerializeToString() + b"\x0a",
        bootstrap_pb2.BootstrapParams(namespace="ns").SerializeToString(),
        bootstrap_pb2.BootstrapParams(instance_id="c2", namespace="ns").SerializeToString(),
        Any(type_url="runtimeoptions.v1.Options", value=b"x").SerializeToString(),
        PARAMS.SerializeToString() + bytes(1 << 17),
    ],
)
def test_what_is_not_for_this_task_is_not_taken(relays: Relays, params: bytes) -> None:
    """Older versions write a runtime's options there: an Any, whose first field is a text as well."""
    status, said = told_on_stdin(relays, relays.bundle("c1"), params, "-id", "c1")
    assert status == 1 and b"start needs -namespace and -id" in said and relays.living() == []


def test_a_stdin_that_does_not_end_is_not_waited_for_for_ever(relays: Relays) -> None:
    bundle = relays.bundle("c1")
    process = subprocess.Popen(
        [relays.program, "-id", "c1", "start"],
        cwd=bundle.directory, env={"EXITD_STATE": str(relays.state)}, stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None and b"start needs" in process.stderr.read()
    assert process.wait(LIMIT_SECONDS) == 1
    assert process.stdin is not None
    process.stdin.close()
    process.stderr.close()


def test_of_many_starts_at_once_one_makes_the_relay(relays: Relays) -> None:
    bundles = [relays.bundle(f"c{n}", **{GROUP: "pod"}) for n in range(12)]
    started = [relays.begin(bundle) for bundle in bundles]
    said = {one.communicate(timeout=20)[0] for one in started}
    assert len(said) == 1 and {one.returncode for one in started} == {0}
    assert len(relays.living()) == 1
    relays.connect(bundles[0].address)


def test_a_socket_that_nobody_listens_at_any_more_is_taken_over(relays: Relays) -> None:
    bundle = relays.bundle("c1")
    address = relays.start(bundle)
    killed(relays.living()[0])
    assert relays.socket("c1").exists()
    assert relays.start(bundle) == address
    relays.connect(address)


@pytest.mark.parametrize("missing", ["config.json", "namespace", "state"])
def test_a_start_that_fails_says_why_and_leaves_nothing(relays: Relays, missing: str) -> None:
    bundle = relays.bundle("c1")
    words = relays.words("c1", "start")
    if missing == "config.json":  # its text
        (bundle.directory / "config.json").write_text("{")
    elif missing == "namespace":
        del words[1:3]
    else:  # an id whose address file cannot be written
        (bundle.directory / "address").mkdir()
        (bundle.directory / "address" / "x").touch()
    done = subprocess.run(words, cwd=bundle.directory, env=relays.environment(), capture_output=True, timeout=20)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"containerd-shim-exitd-v2: ")
    assert relays.living() == [] and not relays.socket("c1").exists()


def test_long_names_make_no_long_socket_and_one_that_is_too_long_is_refused(relays: Relays) -> None:
    relays.containerd += "/" + "x" * 1000
    bundle = relays.bundle("c1", **{GROUP: "y" * 255})
    assert len(relays.start(bundle)) == len("unix:///run/containerd/s/") + 64
    longer = relays.bundle("c2", **{GROUP: "y" * 256})
    done = relays.begin(longer)
    assert b"config.json of the bundle" in done.communicate(timeout=20)[0] and done.returncode == 1


def test_flags_that_nobody_knows_yet_are_passed_over(relays: Relays) -> None:
    bundle = relays.bundle("c1")
    words = [relays.program, "--namespace=ns", "-new", "-other", "value", "-debug", *relays.words("c1", "start")[3:]]
    said = subprocess.run(words, cwd=bundle.directory, env=relays.environment(), capture_output=True, timeout=20)
    assert (said.returncode, said.stdout.decode().strip(), said.stderr) == (0, bundle.address, b"")


def test_version_and_info_are_what_containerd_asks_for() -> None:
    program = str(programs.find("containerd-shim-exitd-v2"))

    def said(*words: str) -> bytes:
        return subprocess.run([program, *words], input=b"", capture_output=True, timeout=20, check=True).stdout

    assert said("-v").startswith(b"containerd-shim-exitd-v2:\n  Version:  ")
    assert said("-info").startswith(text(1, "io.containerd.exitd.v2"))
    bad = subprocess.run([program, "-id", "x"], capture_output=True, timeout=20)
    assert bad.returncode == 3 and bad.stderr.startswith(b"usage: ")


# -- the end


def test_a_reply_that_says_leave_is_given_and_then_the_relay_and_its_socket_are_gone(relays: Relays) -> None:
    c = chain(relays)
    c.ask(3, "Shutdown", C1, b"", LEAVE)
    assert c.client.next() is None
    relays.gone(c.pid)
    assert not relays.socket("c1").exists()


def test_a_relay_does_not_leave_while_another_connection_asks(relays: Relays) -> None:
    c = chain(relays)
    other = relays.connect(c.bundle.address)
    other.ask(1, "Create", of_task("c2"))
    up, _ = c.exitd.greeted()
    assert up.next() is not None
    c.ask(3, "Shutdown", C1, b"", LEAVE)
    up.send(Frame(1, RESPONSE, 0, PID))
    assert other.next() == Frame(1, RESPONSE, 0, PID)
    c.ask(5, "State", C1, PID)
    assert relays.socket("c1").exists()


def test_a_relay_leaves_when_a_call_that_was_on_its_way_has_been_answered(relays: Relays) -> None:
    """As ctr's CloseIO is, when the end of its own stdin meets the end of the task."""
    c = chain(relays)
    c.client.ask(3, "CloseIO", C1)
    c.client.ask(5, "Shutdown", C1)
    c.up.frames(2)
    c.answer(5, b"", LEAVE)
    assert c.client.next() == Frame(5, RESPONSE, 0, b"")
    assert c.client.silent() and relays.socket("c1").exists()
    c.answer(3, PID)
    assert c.client.next() == Frame(3, RESPONSE, 0, PID)
    assert c.client.next() is None
    relays.gone(c.pid)
    assert not relays.socket("c1").exists()


def test_a_relay_whose_address_was_given_out_waits_for_who_has_it(relays: Relays) -> None:
    """A container comes into the pod whose last one goes."""
    c = chain(relays, **{GROUP: "pod"})
    member = relays.bundle("c2", **{GROUP: "pod"})
    assert relays.start(member) == c.bundle.address
    c.ask(3, "Shutdown", C1, b"", LEAVE)
    assert c.client.silent()
    other = relays.connect(member.address)
    other.ask(1, "Create", of_task("c2"))
    up, hello = c.exitd.greeted()
    assert (hello.number("pid"), up.next()) == (c.pid, Frame(1, REQUEST, 0, call("Create", of_task("c2"))))
    up.send(Frame(1, RESPONSE, 0, PID))
    assert other.next() == Frame(1, RESPONSE, 0, PID)
    c.ask(5, "Shutdown", C1, b"", LEAVE)
    assert (c.client.next(), other.next()) == (None, None)
    relays.gone(c.pid)


def test_delete_promises_nobody(relays: Relays) -> None:
    c = chain(relays)
    c.exitd.listener.close()
    relays.delete(c.bundle)
    c.ask(3, "Shutdown", C1, b"", LEAVE)
    assert c.client.next() is None
    relays.gone(c.pid)


def test_a_relay_does_not_leave_between_a_starts_look_and_its_word(relays: Relays) -> None:
    """Both have the same lock."""
    c = chain(relays)
    lock = os.open(SOCKETS, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        c.ask(3, "Shutdown", C1, b"", LEAVE)
        assert c.client.silent()
        start = relays.connect(c.bundle.address)  # as `start` does it
        start.send(Frame(0, SOON, 0, b""))
        start.close()
    finally:
        os.close(lock)
    assert c.client.silent()
    other = relays.connect(c.bundle.address)
    other.ask(1, "Create", of_task("c2"))
    up, hello = c.exitd.greeted()
    assert (hello.number("pid"), up.next()) == (c.pid, Frame(1, REQUEST, 0, call("Create", of_task("c2"))))


def test_whoever_is_given_an_address_in_the_moment_of_an_end_finds_a_relay_there(relays: Relays) -> None:
    exitd = relays.exitd()
    client = relays.connect(relays.start(relays.bundle("c0", **{GROUP: "pod"})))
    client.ask(1, "Wait", of_task("c"))
    up, _ = exitd.greeted()
    up.next()
    for turn in range(1, 40):
        client.ask(3, "Shutdown", C1)
        up.next()
        starting = relays.begin(bundle := relays.bundle(f"c{turn}", **{GROUP: "pod"}))
        if turn % 2:
            assert starting.stdout is not None
            select.select([starting.stdout], [], [], turn / 5000)  # somewhere in its few milliseconds
        up.send(Frame(3, RESPONSE, LEAVE, b""))
        said, _ = starting.communicate(timeout=LIMIT_SECONDS)
        assert (starting.returncode, said.decode().strip()) == (0, bundle.address), said
        client = relays.connect(bundle.address)
        client.ask(1, "Wait", of_task("c"))
        up, _ = exitd.greeted()
        assert up.next() == Frame(1, REQUEST, 0, call("Wait", of_task("c")))


def test_a_relay_that_nobody_is_connected_to_asks_whether_it_is_needed(relays: Relays) -> None:
    """containerd ended after `start`, or gave the Shutdown up; or it is merely away, and there is a task."""
    c = chain(relays, "serving")
    c.client.close()
    relays.start(relays.bundle("forsaken"))
    assert c.up.frames(2) == [Frame(0, BYE, 0, b"")]
    c.exitd.listener.settimeout(ASKED_WITHIN)
    pids = {}
    for _ in range(2):
        up, hello = c.exitd.greeted()
        assert up.next() == Frame(1, REQUEST, 0, call("Shutdown"))
        group = hello.get("group")
        up.send(Frame(1, RESPONSE, LEAVE if group == "forsaken" else 0, b""))
        assert up.next() in (Frame(0, BYE, 0, b""), None)
        pids[group] = hello.number("pid")
    relays.gone(pids["forsaken"])
    assert not relays.socket("forsaken").exists()
    client = relays.connect(c.bundle.address)
    assert (client.relay(), pids["serving"]) == (c.pid, c.pid)


def test_a_shutdown_that_containerd_did_not_wait_for_ends_the_relay_when_exitd_is_back(relays: Relays) -> None:
    c = chain(relays)
    c.exitd.end()
    c.client.ask(3, "Shutdown", C1)
    c.client.close()
    c.exitd.again()
    c.up, _ = c.exitd.greeted()
    assert c.up.next() == Frame(3, REQUEST, 0, call("Shutdown", C1))
    c.answer(3, b"", LEAVE)
    assert c.up.next() in (Frame(0, BYE, 0, b""), None)
    relays.gone(c.pid)
    assert not relays.socket("c1").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_relay_and_its_socket_with_it(relays: Relays, number: signal.Signals) -> None:
    c = chain(relays)
    os.kill(c.pid, number)
    assert c.client.next() is None
    relays.gone(c.pid)
    assert not relays.socket("c1").exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1])
def test_other_signals_do_not(relays: Relays, number: signal.Signals) -> None:
    c = chain(relays)
    os.kill(c.pid, number)
    c.ask(3, "State", C1, PID)


def test_a_socket_that_is_another_relays_by_now_is_not_removed(relays: Relays) -> None:
    c = chain(relays)
    path = relays.socket("c1")
    path.unlink()
    other = socket.socket(socket.AF_UNIX)
    other.bind(str(path))
    os.kill(c.pid, signal.SIGTERM)
    relays.gone(c.pid)
    assert path.exists()
    other.close()

"""What no containerd should ever send a relay, in every request of the Task service: a named refusal, or a task that is
made and removed; no more memory than before, no internal error in the log, and others are served."""

import itertools
import json
import pathlib
import random
from collections.abc import Iterator

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

from protos.containerd import runc_pb2, runtimeoptions_pb2, types_pb2
from protos.containerd import task_pb2 as pb
from protos.ttrpc.v1.ttrpc_pb2 import Request
from supervisor.containerd.mounts import MOST_MOUNTS
from supervisor.containerd.tasks import RUNNING
from supervisor.model.errors import Code
from supervisor.ttrpc.connection import MAX_TEXT
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.frames import REQUEST, Frame
from tests.system import hostile
from tests.system.daemons import Daemon
from tests.system.processes import private_kb
from tests.system.tasks import PROCESS, RESOURCES, V2, V3, Relay, Tasks, of_daemon

GROWTH_KB = 100 << 10
SHORT_KB = 20  # of log, for one refusal
SAMPLE = 60
TEXTS = {
    "empty": "",
    "zero byte": "a\0b",
    "newline": "a\nb",
    "up": "..",
    "path": "../../../etc/passwd",
    "absolute": "/etc",
    "hidden": ".a",
    "option": "-a",
    "space": "a b",
    "not ASCII": "\u0661",
    "long": "x" * 129,
    "very long": "x" * (1 << 20),
}
# One of each, of a task that is not there.
REQUESTS: dict[str, Message] = {
    "Start": pb.StartRequest(id="none"),
    "Delete": pb.DeleteRequest(id="none"),
    "State": pb.StateRequest(id="none"),
    "Wait": pb.WaitRequest(id="none"),
    "Pids": pb.PidsRequest(id="none"),
    "Stats": pb.StatsRequest(id="none"),
    "Kill": pb.KillRequest(id="none", signal=9),
    "Pause": pb.PauseRequest(id="none"),
    "Resume": pb.ResumeRequest(id="none"),
    "Update": pb.UpdateTaskRequest(id="none"),
    "Exec": pb.ExecProcessRequest(id="none", exec_id="e"),
    "ResizePty": pb.ResizePtyRequest(id="none"),
    "CloseIO": pb.CloseIORequest(id="none", stdin=True),
}


@pytest.fixture
def tasks(daemon: Daemon, tmp_path: pathlib.Path) -> Iterator[Tasks]:
    memory, log = private_kb(daemon.pid), daemon.log.stat().st_size
    with of_daemon(daemon, tmp_path) as made:
        yield made
        assert lives_on(made), "others are not served"
    assert private_kb(daemon.pid) - memory < GROWTH_KB
    with daemon.log.open("rb") as file:
        file.seek(log)
        said = file.read()
    assert b"internal error" not in said and b"Traceback" not in said, said[-3000:]


def lives_on(tasks: Tasks) -> bool:
    """A whole life through the same relay."""
    tasks.relay.create("other", tasks.bundle("other", "/bin/sh", "-c", "exit 7"))
    tasks.relay.start("other")
    tasks.relay.wait("other")
    return tasks.relay.delete("other").exit_status == 7


def refusal(relay: Relay, method: str, request: Message, service: str = V2) -> CallFailed | None:
    try:
        relay.ask(method, request, service)
    except CallFailed as error:
        return error
    return None


def is_named(error: CallFailed) -> bool:
    return "internal error" not in str(error) and len(error.text) <= MAX_TEXT


def test_an_id_that_is_none_is_refused_by_name(tasks: Tasks) -> None:
    bundle = tasks.bundle("c", "/bin/true")
    for name, text in TEXTS.items():
        error = refusal(tasks.relay, "Create", pb.CreateTaskRequest(id=text, bundle=str(bundle)))
        assert error is not None and error.code == Code.INVALID_ARGUMENT and is_named(error), (name, error)
    tasks.relay.create("c", bundle)
    for name, text in TEXTS.items():
        assert tasks.relay.add_exec("c", text, "/bin/true") == Code.INVALID_ARGUMENT, name
    tasks.relay.delete("c")


def test_a_bundle_that_is_none_is_refused_by_name(tasks: Tasks) -> None:
    for path in (f"{top}{text}" for text in TEXTS.values() for top in ("", "/", "/proc/self/root/")):
        error = refusal(tasks.relay, "Create", pb.CreateTaskRequest(id="c", bundle=path))
        assert error is not None and is_named(error), (path[:100], error)


def test_a_root_file_system_of_anything_is_refused_by_name_and_leaves_no_mount(tasks: Tasks) -> None:
    before = tasks.mounts()
    bundle = tasks.bundle("c", "/bin/true")
    whole = {"type": "bind", "source": str(bundle / "rootfs"), "options": ["rbind", "ro"]}
    for text, field in itertools.product(TEXTS.values(), ("type", "source", "target", "options")):
        value = {"target": f"{text}/x", "options": [text] * 100}.get(field, text)
        request = pb.CreateTaskRequest(id="c", bundle=str(bundle))
        request.rootfs.append(types_pb2.Mount(**{**whole, field: value}))  # type: ignore[arg-type]
        error = refusal(tasks.relay, "Create", request)
        if error is None:  # unknown words of a bind are data, which it has not
            tasks.relay.delete("c")
        else:
            assert is_named(error), (field, text[:100], error)
        assert tasks.mounts() == before, (field, text[:100])


def test_more_mounts_than_any_image_has_are_refused_before_the_first_is_made(tasks: Tasks) -> None:
    bundle = tasks.bundle("c", "/bin/true")
    mount = types_pb2.Mount(type="bind", source=str(bundle / "rootfs"), options=["rbind"])
    error = refusal(tasks.relay, "Create", pb.CreateTaskRequest(id="c", bundle=str(bundle), rootfs=[mount] * 10_000))
    assert error is not None and f"at most {MOST_MOUNTS} are made" in str(error) and not tasks.mounts()


def test_streams_of_anything_are_taken_or_refused_by_name(tasks: Tasks) -> None:
    bundle, forms = tasks.bundle("c", "/bin/true"), ("{}", "/nowhere/{}", "file://{}", "binary://{}", "{}://")
    for text, form, field in itertools.product(TEXTS.values(), forms, ("stdin", "stdout", "stderr")):
        error = refusal(tasks.relay, "Create", created(bundle, field, form.format(text)))
        if error is None:
            tasks.relay.delete("c")
        else:
            assert is_named(error), (field, form, text[:100], error)


def created(bundle: pathlib.Path, field: str, value: str) -> pb.CreateTaskRequest:
    request = pb.CreateTaskRequest(id="c", bundle=str(bundle))
    setattr(request, field, value)
    return request


TOML = {
    "no text": b"\xff\xfe",
    "zero bytes": bytes(4096),
    "no TOML": b"= 1",
    "too deep": b"a = " + b"[" * 100_000,
    "a table too deep": b"a." * 8_000 + b"b = 1",
    "a number": b"Root = " + b"1" * 5000,
    "a long text": b'Root = "' + b"x" * (1 << 20) + b'"',
    "another type": b"SystemdCgroup = { a = 1 }",
    "a negative number": b"IoUid = -1",
    "a large number": b"IoUid = 4294967296",
    "a path that leads out": b'ShimCgroup = "/../../etc"',
    "many keys": b"".join(b"k%d = 1\n" % number for number in range(1_500)),
    "a long key": b"x" * 16_000 + b" = 1",
    "large": b"# " * (1 << 20),
}


def test_runtime_options_of_anything_are_noted_or_refused_and_cost_a_short_line_in_the_log(tasks: Tasks) -> None:
    bundle = tasks.bundle("c", "/bin/true")
    for name, text in TOML.items():
        given, before = Any(), tasks.daemon.log.stat().st_size
        given.Pack(runtimeoptions_pb2.Options(type_url="a", config_body=text))
        error = refusal(tasks.relay, "Create", pb.CreateTaskRequest(id="c", bundle=str(bundle), options=given))
        if error is None:
            tasks.relay.delete("c")
        else:
            assert error.code == Code.INVALID_ARGUMENT and is_named(error), (name, error)
        assert tasks.daemon.log.stat().st_size - before < SHORT_KB << 10, name


def test_each_text_of_runcs_options_may_be_anything(tasks: Tasks) -> None:
    bundle = tasks.bundle("c", "/bin/true")
    texts = [field.name for field in runc_pb2.Options.DESCRIPTOR.fields if field.type == field.TYPE_STRING]
    for text, field in itertools.product(TEXTS.values(), texts):
        asked_for, given = runc_pb2.Options(), Any()
        setattr(asked_for, field, text)
        given.Pack(asked_for)
        error = refusal(tasks.relay, "Create", pb.CreateTaskRequest(id="c", bundle=str(bundle), options=given))
        if error is None:
            tasks.relay.delete("c")
        else:
            assert is_named(error), (field, text[:100], error)
    for text in filter(None, TEXTS.values()):
        given = Any()
        given.Pack(runtimeoptions_pb2.Options(config_path=text))
        error = refusal(tasks.relay, "Create", pb.CreateTaskRequest(id="c", bundle=str(bundle), options=given))
        assert error is not None and error.code == Code.INVALID_ARGUMENT and is_named(error), (text[:100], error)


def test_options_of_a_type_that_is_unknown_cost_a_short_line_in_the_log(tasks: Tasks) -> None:
    bundle, before = tasks.bundle("c", "/bin/true"), tasks.daemon.log.stat().st_size
    given = Any(type_url="a/" + "x" * (1 << 20), value=b"\xff")
    tasks.relay.create("c", bundle, options=given)
    tasks.relay.delete("c")
    assert tasks.daemon.log.stat().st_size - before < SHORT_KB << 10


def test_an_exec_with_anything_in_any_place_of_its_process_is_added_or_refused_by_name(tasks: Tasks) -> None:
    process = {
        "args": ["/bin/true"],
        "env": ["A=1"],
        "cwd": "/",
        "terminal": False,
        "user": {"uid": 0, "gid": 0, "additionalGids": [1]},
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 64, "soft": 64}],
        "capabilities": {"bounding": ["CAP_KILL"]},
    }
    cases = [(place, name) for place in hostile.places(process) for name in hostile.VALUES]
    tasks.relay.create("c", tasks.bundle("c", "/bin/sleep", "1000"))
    tasks.relay.start("c")
    for place, name in random.Random(8).sample(cases, SAMPLE):
        text = json.dumps(hostile.replaced(process, place, hostile.VALUES[name]))
        added(tasks, text.encode(), f"{place} {name}")
    for name, document in hostile.TEXTS.items():
        added(tasks, document[: 3 << 20], name)
    tasks.relay.kill("c")
    tasks.relay.wait("c")
    tasks.relay.delete("c")


def added(tasks: Tasks, document: bytes, what: str) -> None:
    """An exec that is added is started, too, and removed."""
    spec = Any(type_url=PROCESS, value=document)
    error = refusal(tasks.relay, "Exec", pb.ExecProcessRequest(id="c", exec_id="e", spec=spec))
    if error is None:
        error = refusal(tasks.relay, "Start", pb.StartRequest(id="c", exec_id="e"))
        if error is None:
            tasks.relay.wait("c", "e")
        tasks.relay.delete("c", "e")
    assert error is None or is_named(error), (what, error)


def test_an_update_with_anything_is_done_or_refused_by_name(tasks: Tasks) -> None:
    tasks.relay.create("c", tasks.bundle("c", "/bin/sleep", "1000"))
    tasks.relay.start("c")
    resources = {"memory": {"limit": 1 << 28}, "pids": {"limit": 10}, "cpu": {"shares": 100}}
    cases = [(place, name) for place in hostile.places(resources) for name in hostile.VALUES]
    for place, name in random.Random(8).sample(cases, SAMPLE):
        text = json.dumps(hostile.replaced(resources, place, hostile.VALUES[name]))
        given = Any(type_url=RESOURCES, value=text.encode())
        error = refusal(tasks.relay, "Update", pb.UpdateTaskRequest(id="c", resources=given))
        assert error is None or is_named(error), (place, name, error)
    tasks.relay.kill("c")
    tasks.relay.wait("c")
    tasks.relay.delete("c")


def test_numbers_that_cannot_be_are_refused_by_name_and_the_task_lives(tasks: Tasks) -> None:
    tasks.relay.create("c", tasks.bundle("c", "/bin/sleep", "1000"))
    tasks.relay.start("c")
    for number in (0, 65, 2**31, 2**32 - 1):
        for everyone in (False, True):
            error = refusal(tasks.relay, "Kill", pb.KillRequest(id="c", signal=number, all=everyone))
            assert error is not None and is_named(error), (number, everyone, error)
        error = refusal(tasks.relay, "ResizePty", pb.ResizePtyRequest(id="c", width=number, height=number))
        assert error is None or is_named(error), (number, error)
    assert tasks.relay.state("c").status == RUNNING
    tasks.relay.kill("c")
    assert tasks.relay.wait("c").exit_status == 137
    tasks.relay.delete("c")


def test_a_task_that_is_not_there_is_named(tasks: Tasks) -> None:
    for service, method in itertools.product((V2, V3), REQUESTS):
        error = refusal(tasks.relay, method, REQUESTS[method], service)
        assert error is not None and error.code == Code.NOT_FOUND and "none" in str(error), (service, method, error)


def test_bytes_that_are_no_request_are_refused_by_name_at_every_method(tasks: Tasks) -> None:
    documents = [hostile.TEXTS[name] for name in ("no JSON", "no text", "zero bytes", "large")]
    for document, method in itertools.product(documents, ("Create", "Connect", "Shutdown", *REQUESTS)):
        data = b"\x0a\xff\xff\xff\x7f" + document[: 3 << 20]
        error = raw(tasks.relay, method, data)
        assert error is not None and "does not decode" in str(error) and is_named(error), (method, error)


def raw(relay: Relay, method: str, payload: bytes) -> CallFailed | None:
    data = Request(service=V2, method=method, payload=payload).SerializeToString()
    stream = relay.begin("State", pb.StateRequest(id="none"))  # the next number
    with pytest.raises(CallFailed):
        relay.answer(stream)
    return asked(relay, stream + 2, data)


def asked(relay: Relay, stream: int, data: bytes) -> CallFailed | None:
    relay._next = stream + 2
    relay._asked[stream] = ("none", data)
    relay.say(Frame(stream, REQUEST, 0, data))
    try:
        relay.answer(stream)
    except CallFailed as error:
        return error
    return None

import math

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import execrequests, replies
from supervisor.model.errors import BadRequest
from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.values import Exited, Process, RunKey, Winsize
from tests.supervisor.api.fake_node import AT_NS, ended

FULL = ExecSpec(
    args=("sh", "-c", "exit 3"),
    env=("A=1", "B="),
    cwd="/srv",
    user="web:staff",
    tty=True,
    stdin=True,
    timeout_seconds=2.5,
    attach=True,
    size=Winsize(24, 80),
)


def test_every_field_arrives_and_comes_back() -> None:
    assert execrequests.spec_of(replies.exec_spec_message(FULL)) == FULL


def test_a_small_spec_gets_the_containers_own() -> None:
    assert execrequests.spec_of(pb.ExecSpec(args=["true"])) == ExecSpec(("true",))


@pytest.mark.parametrize(
    ("message", "word"),
    [
        (pb.ExecSpec(), "args: a command is needed"),
        (pb.ExecSpec(args=[""]), "args: a command is needed"),
        (pb.ExecSpec(args=["a\0b"]), "NUL byte"),
        (pb.ExecSpec(args=["x"], env=["A"]), "env 'A'"),
        (pb.ExecSpec(args=["x"], cwd="srv"), "cwd 'srv'"),
        (pb.ExecSpec(args=["x"], user="a b"), "user 'a b'"),
        (pb.ExecSpec(args=["x"], timeout_seconds=-1), "timeout_seconds -1"),
        (pb.ExecSpec(args=["x"], timeout_seconds=math.nan), "timeout_seconds nan"),
        (pb.ExecSpec(args=["x"], timeout_seconds=math.inf), "timeout_seconds inf"),
        (pb.ExecSpec(args=["x"], size=pb.Winsize(rows=1)), "only a terminal has one"),
        (pb.ExecSpec(args=["x"], tty=True, size=pb.Winsize(rows=70000)), "size.rows 70000"),
    ],
)
def test_what_cannot_be_right_is_refused_naming_the_field(message: pb.ExecSpec, word: str) -> None:
    with pytest.raises(BadRequest, match=word):
        execrequests.spec_of(message)


def test_an_exec_is_shown_with_its_end() -> None:
    key = RunKey("c1", 3, "e1")
    e = Exec(key, FULL, ExecPhase.EXITED, "web", "default", "boot", init=Process(7, 8), started_ns=AT_NS)
    message = replies.exec_message(e)
    assert (message.id, message.container_id, message.run, message.phase) == ("e1", "c1", 3, "exited")
    assert (message.init.pid, message.spec.cwd, message.HasField("exit")) == (7, "/srv", False)
    exit = ended("c1", 5)
    assert exit.status == Exited(5)
    message = replies.exec_message(Exec(key, FULL, ExecPhase.EXITED, "web", "default", "boot", exit=exit))
    assert (message.exit.code, message.HasField("init")) == (5, False)

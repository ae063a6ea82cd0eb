"""Whatever a request says, it is refused by its field, or becomes a fact that is stored and shown again."""

import pytest
from hypothesis import HealthCheck, given, settings

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import execrequests, replies, requests
from supervisor.model.errors import ExitdError
from supervisor.model.execs import Exec, ExecPhase
from supervisor.model.values import Container, Phase, RunKey
from supervisor.model.views import View
from supervisor.store import codec
from tests.supervisor.api.odd_messages import message_of

many = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@many
@given(message_of(pb.ContainerSpec))
def test_whatever_a_spec_says_it_is_refused_or_stored_and_shown(message: pb.ContainerSpec) -> None:
    if not message.rootfs and not message.bundle and not message.image:
        message.rootfs = "/"
    try:
        spec = requests.spec_of(message)
    except ExitdError as refused:
        assert len(str(refused)) < 10_000
        return
    container = Container("c1", spec, Phase.RUNNING, 1, 1)
    assert codec.container_of(*codec.container_row(container)) == container
    shown = replies.container_message(View(container))
    assert shown.spec.runtime == spec.runtime and not shown.error


@many
@given(message_of(pb.ExecSpec))
def test_whatever_an_exec_says_it_is_refused_or_stored_and_shown(message: pb.ExecSpec) -> None:
    message.args[:] = message.args or ["sh"]
    try:
        spec = execrequests.spec_of(message)
    except ExitdError as refused:
        assert len(str(refused)) < 10_000
        return
    e = Exec(RunKey("c1", 1, "e1"), spec, ExecPhase.RUNNING, "c1", "default", "boot")
    assert codec.exec_of(e.key, codec.exec_row(e)[3]) == e
    assert list(replies.exec_message(e).spec.args) == list(spec.args)


@pytest.mark.parametrize("words", [{"args": ["x" * (3 << 20)]}, {"args": ["a"], "env": ["A=" + "x" * (3 << 20)]}])
def test_more_words_than_a_program_takes_are_refused_of_an_exec_too(words: dict[str, list[str]]) -> None:
    with pytest.raises(ExitdError, match=r"^(args|env)"):
        execrequests.spec_of(pb.ExecSpec(**words))  # type: ignore[arg-type]  # lists of texts, both

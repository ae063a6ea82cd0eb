"""What the ledger knows, as numbers that Prometheus reads."""

import re

from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.metrics import exposition, families_in, without
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import FakeDaemon

SAMPLE = re.compile(r'[a-z_]+(?:\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z]+="(?:[^"\\\n]|\\["\\n])*")*\})? \d+')
COMMENT = re.compile(r"# (?:HELP [a-z_]+ .+|TYPE [a-z_]+ gauge)")


def ended(**fields: object) -> pb.Exit:
    return pb.Exit(container_id="c1", source="record", reason="self", **fields)  # type: ignore[arg-type]


def test_ends_of_one_kind_are_counted_together_and_memory_kills_added_up() -> None:
    exits = [
        ended(kind="exited", code=7),
        ended(kind="exited", code=7),
        ended(kind="signaled", signal=9, oom=pb.Oom(init=True, kills=2)),
        pb.Exit(container_id="1234@pid", kind="unknown", cause="watcher-away", source="none", reason="unknown"),
    ]
    lines = exposition(pb.InfoReply(pending_commits=1, seq=5), (), exits, ()).splitlines()
    rest = 'source="record",reason="self",exec="no",watched="no"'
    assert f'exitd_exits{{kind="exited",code="7",signal="",cause="",{rest}}} 2' in lines
    assert f'exitd_exits{{kind="signaled",code="",signal="9",cause="",{rest}}} 1' in lines
    assert 'exitd_memory_kills{watched="no"} 2' in lines and 'exitd_memory_kills{watched="yes"} 0' in lines
    assert "exitd_pending_commits 1" in lines and "exitd_events 5" in lines
    assert sum(line.startswith("exitd_exits{") for line in lines) == 3


def test_containers_are_counted_by_phase_and_each_has_its_restarts() -> None:
    spec = pb.ContainerSpec(name="web")
    containers = [
        pb.Container(id="c1", spec=spec, phase=pb.PHASE_RUNNING, restart_count=3),
        pb.Container(id="c2", phase=pb.PHASE_RUNNING, recovering=True),
    ]
    watches = [pb.Watch(target="/run/runc", kind="runc-root", processes=4)]
    lines = exposition(pb.InfoReply(), containers, (), watches).splitlines()
    assert 'exitd_containers{phase="running"} 1' in lines and 'exitd_containers{phase="recovering"} 1' in lines
    assert 'exitd_restarts{container="web",id="c1"} 3' in lines
    assert 'exitd_watched_processes{target="/run/runc",kind="runc-root"} 4' in lines


@given(st.text(max_size=20), st.text(max_size=20))
def test_whatever_words_there_are_each_line_is_one_sample(name: str, cause: str) -> None:
    container = pb.Container(spec=pb.ContainerSpec(name=name))
    text = exposition(pb.InfoReply(), [container], [ended(kind="unknown", cause=cause)], [])
    for line in text.removesuffix("\n").split("\n"):
        assert SAMPLE.fullmatch(line) or COMMENT.fullmatch(line), line


def test_it_is_printed_as_it_is_read_and_nothing_else(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    daemon.answers.Watches = lambda _: pb.WatchesReply()
    said = exitctl("metrics")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("# HELP exitd_ready Ready.\nexitd_ready 1\n# HELP exitd_exits ")
    assert said.out.endswith("exitd_events 0\n")


def test_what_both_the_daemon_and_the_command_have_is_printed_once() -> None:
    page = '# HELP a A.\n# TYPE a gauge\na 1\n# HELP b B.\n# TYPE b gauge\nb{x="\u2028# HELP a"} 2\n'
    assert without(page, families_in("# HELP a A.\na 3\n")) == page.partition("a 1\n")[2]
    assert without(page, frozenset()) == page and without("", frozenset("a")) == ""

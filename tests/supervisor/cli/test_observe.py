"""`exitctl watch`, over a real channel to a daemon with canned answers: what is asked for, and what is printed."""

from pathlib import Path

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import FakeDaemon


@pytest.fixture
def watching(daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    monkeypatch.chdir(tmp_path)
    daemon.answers.Watch = lambda _: pb.WatchReply(watch=pb.Watch(target="t"), seq=1)
    daemon.answers.EndWatch = lambda _: pb.EndWatchReply()
    daemon.answers.Watches = lambda _: pb.WatchesReply(
        watches=[pb.Watch(target="70", kind="pid", processes=1, exits=2, trouble="none of it is seen")]
    )
    return daemon


def test_a_pid_a_socket_a_directory_or_the_machine_is_watched_by_its_whole_path(
    watching: FakeDaemon, exitctl: Exitctl, tmp_path: Path
) -> None:
    for words, asked in (
        (("70",), pb.WatchRequest(pid=70)),
        (("--containerd", "c.sock"), pb.WatchRequest(containerd=f"{tmp_path}/c.sock")),
        (("--runc-root", "runc"), pb.WatchRequest(runc_root=f"{tmp_path}/runc")),
        (("--node",), pb.WatchRequest(node=True)),
    ):
        said = exitctl("watch", "-d", *words)
        assert (said.code, said.out, said.err) == (0, "t\n", "")
        assert watching.asked == [asked]
        watching.asked.clear()


def test_what_cannot_be_seen_of_a_watch_is_said_once_it_is_begun(watching: FakeDaemon, exitctl: Exitctl) -> None:
    watching.answers.Watch = lambda _: pb.WatchReply(watch=pb.Watch(target="t", trouble="it does not answer"))
    said = exitctl("watch", "-d", "--containerd", "/c")
    assert (said.code, said.out, said.err) == (0, "t\n", "exitctl: it does not answer\n")


@pytest.mark.parametrize(
    "words",
    [(), ("70", "--node"), ("--list", "--node"), ("--stop", "70", "70"), ("--containerd", "/c", "--runc-root", "/r")],
    ids=" ".join,
)
def test_nothing_or_two_things_to_watch_are_refused_before_exitd_is_asked(
    watching: FakeDaemon, exitctl: Exitctl, words: tuple[str, ...]
) -> None:
    said = exitctl("watch", "-d", *words)
    assert (said.code, said.out, "what to watch: PID" in said.err, watching.asked) == (2, "", True, [])


def test_a_watch_is_ended_by_what_it_was_begun_with(watching: FakeDaemon, exitctl: Exitctl, tmp_path: Path) -> None:
    for word, target in (("70", "70"), ("node", "node"), ("runc", f"{tmp_path}/runc"), ("/r", "/r")):
        said = exitctl("watch", "--stop", word)
        assert (said.code, said.out, watching.asked.pop().target) == (0, f"{word}\n", target)


def test_the_watches_are_listed_with_what_each_has_seen(watching: FakeDaemon, exitctl: Exitctl) -> None:
    head, row = exitctl("watch", "--list").out.splitlines()
    assert head.split() == ["TARGET", "KIND", "SINCE", "PROCESSES", "EXITS", "TROUBLE"]
    assert (row.split()[:2], row.split()[-7:]) == (["70", "pid"], ["1", "2", "none", "of", "it", "is", "seen"])
    assert exitctl("watch", "--list", "-f", "{{.Target}} {{.Exits}}").out == "70 2\n"

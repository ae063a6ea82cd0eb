"""`python -m shim.byhand` itself: what it refuses, what it takes back, what it leaves to exitd."""

import json
import pathlib
import time

import pytest

from tests.system import byhand, lives, oracle
from tests.system.byhand import adopted, begun, by_hand
from tests.system.daemons import Daemon
from tests.system.oracle import end_and_judge
from tests.system.processes import killed
from tests.system.runtimes import Wrapper

pytestmark = pytest.mark.observed()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--id", "a/b"), "--id 'a/b': at most 63 of"),
        (("--id", "0" * 64), "--id '0000"),
        (("--name", "ä"), "--name 'ä': at most 63 of"),
        (("--runtime", "no-such"), "--runtime no-such: no such program"),
        (("--state", "/tmp/" + "x" * 64), "at most 64 bytes"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_made(daemon: Daemon, options: tuple[str, str], words: str) -> None:
    bundle = byhand.bundle(daemon, oracle.fresh_name(), "/bin/true")
    done = by_hand(daemon, *options, str(bundle))
    assert (done.returncode, done.stdout) == (1, "") and words in done.stderr
    oracle.nothing_left(daemon)


@pytest.mark.parametrize("keeper", [True, False], ids=["with a keeper", "without one"])
def test_one_that_cannot_be_made_leaves_nothing_behind(daemon: Daemon, keeper: bool) -> None:
    bundle = byhand.bundle(daemon, oracle.fresh_name(), "/no/such/program")
    if not keeper:
        killed(daemon.keeper_pid())
    done = by_hand(daemon, str(bundle))
    assert done.returncode == 1 and "no such file" in done.stderr
    oracle.nothing_left(daemon)


def test_a_bundle_that_cannot_be_read_or_wants_a_terminal_is_refused_by_name(daemon: Daemon) -> None:
    bundle = byhand.bundle(daemon, oracle.fresh_name(), "/bin/true")
    config = json.loads((bundle / "config.json").read_text())
    for text, words in (
        (json.dumps({**config, "process": {**config["process"], "terminal": True}}), "process.terminal is true"),
        ('{"process"', "is no container's configuration"),
        ("[]", "is no container's configuration"),
    ):
        (bundle / "config.json").write_text(text)
        done = by_hand(daemon, str(bundle))
        assert done.returncode == 1 and words in done.stderr and f"{bundle}/config.json" in done.stderr
    done = by_hand(daemon, f"{bundle}/nowhere")
    assert done.returncode == 1 and "config.json: No such file or directory" in done.stderr
    oracle.nothing_left(daemon)


def test_an_id_that_is_taken_is_refused_and_its_owner_untouched(daemon: Daemon) -> None:
    subject = begun(daemon, oracle.WHEN_TOLD, 43, "--id", f"own-{time.time_ns()}")
    bundle = byhand.bundle(daemon, oracle.fresh_name(), "/bin/true")
    done = by_hand(daemon, "--id", subject.id, str(bundle))
    assert done.returncode == 1 and f"--id {subject.id}: " in done.stderr and "choose another" in done.stderr
    subject.go()
    assert end_and_judge(daemon, subject) == ["exited by record"]


def test_a_start_that_fails_is_reported_and_the_exit_is_in_the_ledger(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    runtime = Wrapper.make(tmp_path)
    runtime.on("start", "echo no >&2; exit 1")
    subject, bundle = byhand.observed(daemon)
    id = oracle.fresh_name()
    done = by_hand(daemon, "--id", id, "--runtime", runtime.name, str(bundle))
    assert done.returncode == 1 and f"start of {id}: no; it was killed" in done.stderr
    subject.id = id
    adopted(daemon, subject)
    with daemon.client() as client:
        exit_ = lives.last_exit(client, id)
        assert (exit_.kind, exit_.cause, exit_.source) == ("unknown", "never-started", "record")
        client.remove(id, force=False)
    assert subject.truth() == {}
    oracle.nothing_left(daemon)

"""Runtimes that fail, hang, lie and die: a clear error in bounded time, nothing left, the name free at once."""

import pathlib
import threading
import time
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import ExitdError, RuntimeFailed, RuntimeMissing, TimedOut
from tests.system import daemons, lives
from tests.system.daemons import Daemon, Left, left, remove_all, spec
from tests.system.lives import last_exit, types, word
from tests.system.runtimes import Wrapper
from tests.system.waits import scaled, until

# Of a command that hangs; an ordinary one, which is not to reach it, may have no processor for a second.
LIMITS = "[limits]\nruntime_seconds = 3.0\ncreate_seconds = 6.0\n"
DIES, FAILS, HANGS = "kill -9 $$", "echo no such luck >&2; exit 3", "exec sleep 1000"


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    (config := tmp_path_factory.mktemp("hasty") / "config.toml").write_text(LIMITS)
    with daemons.daemon(extra=("--config", str(config), "--reconcile-seconds", "1")) as made:
        yield made


@pytest.fixture(scope="module")
def patient() -> Iterator[Daemon]:
    with daemons.daemon(extra=("--reconcile-seconds", "1")) as made:
        yield made


@pytest.fixture
def daemon(request: pytest.FixtureRequest) -> Daemon:
    """The limit is short where a command hangs; others take as long as they take on a busy machine."""
    made: Daemon = request.getfixturevalue("hasty" if "hang" in request.node.name else "patient")
    return made


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as made:
        daemon.warm(made)
        yield made


@pytest.fixture
def wrapper(tmp_path: pathlib.Path) -> Wrapper:
    return Wrapper.make(tmp_path)


@pytest.fixture(autouse=True)
def nothing_stays(daemon: Daemon, client: Client) -> Iterator[None]:
    before = left(daemon)
    yield
    remove_all(client)
    until(lambda: no_more(left(daemon), before), f"{left(daemon)}, before: {before}")


def no_more(now: Left, before: Left) -> bool:
    return all(getattr(now, name) <= getattr(before, name) for name in Left.__dataclass_fields__)


def refused(client: Client, wrapper: Wrapper) -> ExitdError:
    """The error of a create, and the proof that the name is free when it comes."""
    with pytest.raises(ExitdError) as caught:
        client.create(spec("true", name="mine", runtime=wrapper.name))
    for verb in ("create", "start", "state", "delete"):
        wrapper.path.with_name(verb).unlink(missing_ok=True)
    container, exit_ = lives.run(client, "sh", "-c", "exit 7", name="mine", runtime=wrapper.name)
    assert word(exit_) == "exited 7"
    client.remove(container, force=False)
    return caught.value


def test_a_create_that_fails_gives_the_runtimes_own_words(client: Client, wrapper: Wrapper) -> None:
    wrapper.on("create", FAILS)
    error = refused(client, wrapper)
    assert isinstance(error, RuntimeFailed) and "no such luck" in str(error)


def test_a_create_that_dies_by_a_signal_is_an_error_and_not_a_container(client: Client, wrapper: Wrapper) -> None:
    wrapper.on("create", DIES)
    assert isinstance(refused(client, wrapper), RuntimeFailed)


def test_a_create_that_dies_after_it_made_the_container_leaves_none(client: Client, wrapper: Wrapper) -> None:
    wrapper.on("create", f'runc "$@"; {DIES}')
    assert isinstance(refused(client, wrapper), RuntimeFailed)


@pytest.mark.parametrize("before", ["", 'runc "$@"; '], ids=["at once", "having made the container"])
def test_a_create_that_hangs_is_ended_at_its_limit(client: Client, wrapper: Wrapper, before: str) -> None:
    wrapper.on("create", before + HANGS)
    begun = time.monotonic()
    error = refused(client, wrapper)
    assert isinstance(error, TimedOut) and "6 s" in str(error)
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("program", ["/bin/false", "/bin/true"])
def test_a_program_that_is_no_runtime_is_an_error_and_not_a_0(client: Client, program: str) -> None:
    with pytest.raises(RuntimeFailed):
        client.create(spec("true", name="mine", runtime=program))
    assert [c.spec.name for c in client.list(all_of_them=True)] == []


def test_a_runtime_that_is_not_there_is_named(client: Client) -> None:
    for name in ("no-such-runtime", "/no/such/runtime", "/etc/passwd", "/etc"):
        with pytest.raises(RuntimeMissing) as caught:
            client.create(spec("true", runtime=name))
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "lie",
    ["-1", "0", "1", "", "nonsense", "99999999999999999999", "4194304", "$$", "$PPID"],
    ids=["negative", "zero", "init of the host", "empty", "no number", "huge", "nobody", "its own", "the shim"],
)
def test_a_pid_file_that_lies_is_refused_and_nobody_is_signalled(client: Client, wrapper: Wrapper, lie: str) -> None:
    wrapper.on("create", f'runc "$@"; while [ "$1" != --pid-file ]; do shift; done; printf %s "{lie}" >$2; exit 0')
    error = refused(client, wrapper)
    assert isinstance(error, RuntimeFailed)
    assert "pid file" in str(error) or "not a child" in str(error)


def test_a_pid_file_that_is_missing_or_a_fifo_is_refused(client: Client, wrapper: Wrapper) -> None:
    for trick in ("rm $2", "rm $2; mkfifo $2", "rm $2; ln -s /proc/1/stat $2", "rm $2; mkdir $2"):
        wrapper.on("create", f'runc "$@"; while [ "$1" != --pid-file ]; do shift; done; {trick}; exit 0')
        error = refused(client, wrapper)
        assert isinstance(error, RuntimeFailed) and "pid file" in str(error), trick


def test_a_stale_pid_of_a_dead_process_is_not_believed(client: Client, wrapper: Wrapper) -> None:
    wrapper.on("create", 'sleep 0 & wait; while [ "$1" != --pid-file ]; do shift; done; printf %s $! >$2; exit 0')
    assert "not a child" in str(refused(client, wrapper))


def test_a_create_that_goes_on_behind_its_own_back_is_refused_and_leaves_nothing(
    client: Client, wrapper: Wrapper
) -> None:
    wrapper.on("create", '(sleep 0.1; setsid runc "$@") & exit 0')
    assert isinstance(refused(client, wrapper), RuntimeFailed)


def test_an_init_that_was_reparented_is_reported_with_its_true_code(client: Client, wrapper: Wrapper) -> None:
    """The shim is the subreaper above whatever the runtime does."""
    wrapper.on(
        "create",
        f'(setsid sh -c \'runc "$@"; : >{wrapper.path}.done\' - "$@" &); until [ -e {wrapper.path}.done ]; do :; done; '
        "exit 0",
    )
    _, exit_ = lives.run(client, "sh", "-c", "exit 42", runtime=wrapper.name)
    assert (word(exit_), exit_.source) == ("exited 42", "record")


@pytest.mark.parametrize(
    ("trick", "kind"),
    [(FAILS, RuntimeFailed), (DIES, RuntimeFailed), (HANGS, TimedOut)],
    ids=["fails", "dies", "hangs"],
)
def test_a_start_that_does_not_is_an_error_and_ends_the_container(
    client: Client, wrapper: Wrapper, trick: str, kind: type[ExitdError]
) -> None:
    wrapper.on("start", trick)
    container = client.create(spec("true", name="mine", runtime=wrapper.name)).id
    with pytest.raises(kind):
        client.start(container)
    exit_ = last_exit(client, container)
    assert (word(exit_), exit_.source, exit_.by.policy) == ("unknown never-started", "record", "start-failed")
    assert types(client, container) == ["create", "failed", "kill", "exit"]
    assert client.inspect(container).error
    client.remove(container, force=False)
    client.create(spec("true", name="mine"))


@pytest.mark.parametrize("trick", ["exit 1", DIES, HANGS], ids=["fails", "dies", "hangs"])
def test_a_start_that_did_its_work_before_its_trouble_counts_as_one(
    client: Client, wrapper: Wrapper, trick: str
) -> None:
    wrapper.on("start", f'runc "$@"; {trick}')
    container = lives.up(client, "sleep", "1000", runtime=wrapper.name).id
    assert types(client, container) == ["create", "start"]
    client.kill(container, "KILL")
    assert word(last_exit(client, container)) == "signaled 9"


def test_a_start_that_fails_because_all_was_over_before_it_returned_counts_as_one(
    client: Client, wrapper: Wrapper
) -> None:
    wrapper.on("start", 'runc "$@"; root=$2; while [ -e $root/* ]; do :; done; exit 1')
    for _ in range(scaled(100, 5)):
        container, exit_ = lives.run(client, "sh", "-c", "exit 7", runtime=wrapper.name)
        assert (word(exit_), exit_.source) == ("exited 7", "record")
        assert types(client, container) == ["create", "start", "exit"]


def test_a_start_that_says_it_worked_and_did_nothing_can_be_killed_and_waited_for(
    client: Client, wrapper: Wrapper
) -> None:
    wrapper.on("start", "exit 0")
    container = lives.up(client, "true", runtime=wrapper.name).id
    client.stop(container, 0)
    assert word(last_exit(client, container)) == "unknown never-started"


@pytest.mark.parametrize("trick", [FAILS, DIES, HANGS, "exit 0"], ids=["fails", "dies", "hangs", "lies"])
def test_a_delete_that_does_not_delays_no_exit_and_leaves_nothing(client: Client, wrapper: Wrapper, trick: str) -> None:
    wrapper.on("delete", trick)
    container, exit_ = lives.run(client, "sh", "-c", "sleep 1000 & exit 7", name="mine", runtime=wrapper.name)
    assert (word(exit_), exit_.source) == ("exited 7", "record")
    client.remove(container, force=False)
    assert word(lives.run(client, "true", name="mine")[1]) == "exited 0"


def test_a_delete_that_fails_three_times_leaves_no_residue(client: Client, wrapper: Wrapper) -> None:
    wrapper.on("delete", f"echo >>{wrapper.path}.count; [ $(wc -l <{wrapper.path}.count) -gt 3 ] || exit 1")
    for code in range(3):
        container, exit_ = lives.run(client, "sh", "-c", f"exit {code}", name="mine", runtime=wrapper.name)
        assert exit_.code == code
        client.remove(container, force=False)


@pytest.mark.parametrize("trick", [FAILS, DIES, HANGS], ids=["fails", "dies", "hangs"])
def test_kill_stop_and_rm_need_no_word_of_the_runtimes_kill_and_state(
    client: Client, wrapper: Wrapper, trick: str
) -> None:
    wrapper.on("kill", trick)
    wrapper.on("state", trick)
    container = lives.up_trapping(client, "trap 'exit 4' TERM; sleep 1000 & wait", runtime=wrapper.name).id
    client.stop(container, 20)
    assert word(last_exit(client, container)) == "exited 4"
    client.start(container)
    client.remove(container, force=True)


@pytest.mark.parametrize(("trick", "kind"), [(FAILS, RuntimeFailed), (HANGS, TimedOut)], ids=["fails", "hangs"])
def test_a_pause_that_does_not_leaves_the_container_running(
    client: Client, wrapper: Wrapper, trick: str, kind: type[ExitdError]
) -> None:
    wrapper.on("pause", trick)
    container = lives.up(client, runtime=wrapper.name).id
    with pytest.raises(kind):
        client.pause(container)
    assert client.inspect(container).phase == pb.PHASE_RUNNING
    client.remove(container, force=True)


def test_one_hanging_runtime_holds_up_nobody_else(client: Client, wrapper: Wrapper) -> None:
    wrapper.on("create", HANGS)
    wrapper.on("delete", HANGS)
    slow = threading.Thread(target=lambda: refused_quietly(client, wrapper))
    slow.start()
    done = 0
    while slow.is_alive():
        container, exit_ = lives.run(client, "true")
        assert exit_.code == 0
        client.remove(container, force=False)
        done += 1
    assert done > 2


def refused_quietly(client: Client, wrapper: Wrapper) -> None:
    with pytest.raises(TimedOut):
        client.create(spec("true", runtime=wrapper.name))


def test_failed_creates_leave_no_descriptor_and_no_zombie(daemon: Daemon, client: Client, wrapper: Wrapper) -> None:
    wrapper.on("create", FAILS)
    before = left(daemon)
    for _ in range(20):
        with pytest.raises(RuntimeFailed):
            client.create(spec("true", name="mine", runtime=wrapper.name))
    until(lambda: no_more(left(daemon), before), f"{left(daemon)}, before: {before}")


def test_a_runtime_hears_nothing_of_the_service_manager_and_has_no_descriptor_but_of_its_answers(
    wrapper: Wrapper, tmp_path: pathlib.Path
) -> None:
    """What it begins has none: `test_a_container_has_no_descriptor_but_its_streams`."""
    for verb in ("create", "start", "delete"):
        wrapper.on(verb, f"env >{tmp_path}/{verb}.env; ls -l /proc/self/fd >{tmp_path}/{verb}.fds")
    words = ("env", "NOTIFY_SOCKET=/run/nowhere", "LISTEN_FDS=0", "LISTEN_PID=1")
    with daemons.daemon(wrapper=words) as daemon, daemon.client() as client:
        lives.run(client, "true", runtime=wrapper.name)
        listed = tmp_path / "delete.fds"
        until(lambda: listed.exists() and listed.read_text().endswith("\n"), "delete")
        for verb in ("create", "start", "delete"):
            assert "NOTIFY" not in (tmp_path / f"{verb}.env").read_text()
            assert "LISTEN" not in (tmp_path / f"{verb}.env").read_text()
            opened = [line.split()[-3:] for line in (tmp_path / f"{verb}.fds").read_text().splitlines()[1:]]
            # The root of a file system that is mounted nowhere.
            answers = [number for number, _, of in opened if int(number) > 2 and of == "/"]
            assert len(answers) == (verb == "create"), opened
            assert len(opened) == 4 + len(answers), opened  # one is ls's own

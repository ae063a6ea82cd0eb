"""What a daemon may inherit, what callers may send, and two witnesses of one end."""

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from shim import journal, programs
from supervisor.api.client import Client
from supervisor.model.errors import BadRequest, ExitdError
from tests.system import lives
from tests.system.daemonrig import LIMIT_SECONDS, Daemon, left, remove_all, until
from tests.system.lives import last_exit, ledger, types, up, word

NO_SIGCHLD = ("sh", "-c", "trap '' CHLD TERM INT HUP PIPE USR1; exec \"$@\"", "sh")
BLOCKED = (
    sys.executable,
    "-c",
    "import os, signal, sys\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
    "os.execvp(sys.argv[1], sys.argv[1:])",
)
NO_UMASK = ("sh", "-c", 'umask 0; exec "$@"', "sh")
NO_STDIO = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
NO_PLACE = ("sh", "-c", 'd=$(mktemp -d); cd $d; rmdir $d; exec "$@"', "sh")
FEW_FILES = ("prlimit", "--nofile=16:")


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as made:
        daemon.warm(made)
        yield made
    with daemon.client() as made:  # it may be another daemon by now
        remove_all(made)


@pytest.mark.parametrize(
    "wrapper",
    [NO_SIGCHLD, BLOCKED, NO_UMASK, NO_STDIO, NO_PLACE, FEW_FILES],
    ids=["signals ignored", "signals blocked", "no umask", "no stdio", "no working directory", "few files"],
)
def test_whatever_a_daemon_inherits_exits_are_told_and_containers_inherit_nothing_of_it(
    wrapper: tuple[str, ...],
) -> None:
    with lives.daemon(wrapper=wrapper) as daemon, daemon.client() as client:
        assert word(lives.run(client, "sh", "-c", "exit 7")[1]) == "exited 7"
        container = up(client)
        for name in ("init", "shim"):
            pid = getattr(container, name).pid
            status = dict(line.split(":\t") for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
            if name == "init":
                assert (int(status["SigIgn"], 16), int(status["SigBlk"], 16)) == (0, 0)
                assert status["Umask"] == "0022"
        for path in (daemon.state, daemon.root):
            assert not path.stat().st_mode & 0o022
        assert (daemon.root / "exitd.db").stat().st_mode & 0o777 == 0o600
        run_directory = pathlib.Path(client.inspect(container.id).run_directory)
        assert run_directory.stat().st_mode & 0o777 == 0o700
        client.kill(container.id, "KILL")
        assert last_exit(client, container.id).source == "record"


def test_a_keeper_that_was_started_with_sigchld_ignored_still_tells_the_code() -> None:
    with lives.directory() as base:
        daemon = Daemon(base, extra=("--keeper", "wait"))
        daemon.state.mkdir(mode=0o711)
        keeper = [str(programs.find("exitd-keeper")), "--state", str(daemon.state), "--stay"]
        process = subprocess.Popen([*NO_SIGCHLD, *keeper])
        try:
            daemon.start()
            with daemon.client() as client:
                script = "until [ -e /tmp/go ]; do sleep 0.01; done; exit 43"
                container = up(client, "sh", "-c", script)
                os.kill(container.shim.pid, signal.SIGKILL)
                until(lambda: client.inspect(container.id).monitored_by == "keeper", "the keeper's turn")
                pathlib.Path(f"/proc/{container.init.pid}/root/tmp/go").touch()
                exit_ = last_exit(client, container.id)
                assert (word(exit_), exit_.source) == ("exited 43", "keeper")
        finally:
            daemon.end()
            process.kill()
            process.wait()
        until(lambda: not lives.processes_of(base), "processes")


@pytest.mark.parametrize("restarted", [False, True], ids=["daemon lives", "daemon is away"])
def test_a_record_and_a_keepers_entry_of_one_end_are_one_exit(daemon: Daemon, client: Client, restarted: bool) -> None:
    """The shim is killed between its record and its reaping: the keeper inherits the zombie and tells it too."""
    container = up(client, "sh", "-c", "until [ -e /tmp/go ]; do sleep 0.01; done; exit 43")
    inject = ("-e", "trace=waitid", "-e", "inject=waitid:signal=KILL:when=2")
    tracer = subprocess.Popen(
        ["strace", "-p", str(container.shim.pid), "-o", "/dev/null", *inject], stderr=subprocess.PIPE, text=True
    )
    assert tracer.stderr is not None and "attached" in tracer.stderr.readline()
    if restarted:
        daemon.kill()
    pathlib.Path(f"/proc/{container.init.pid}/root/tmp/go").touch()
    tracer.communicate(timeout=LIMIT_SECONDS)
    if restarted:
        until(lambda: container.id in journalled(daemon), "the keeper's entry")
        daemon.start()
    with daemon.client() as again:
        exit_ = last_exit(again, container.id)
        assert (word(exit_), exit_.source) == ("exited 43", "record")
        again.remove(container.id, force=False)
        until(lambda: container.id not in journalled(daemon), "the keeper's entry, acknowledged")
        assert [word(e) for e in ledger(again, container.id)] == ["exited 43"]
        assert types(again, container.id) == ["create", "start", "exit", "remove"]


def journalled(daemon: Daemon) -> list[str]:
    return [
        entry.id for path in daemon.state.glob("keeper-*.journal") for entry in journal.read(path.read_bytes()).entries
    ]


HOSTILE = {
    "a name with a slash": {"name": "a/b"},
    "a name with a newline": {"name": "a\nb"},
    "a name with a dot at its begin": {"name": "../../etc"},
    "a name that is too long": {"name": "a" * 64},
    "a name with an umlaut": {"name": "ä"},
    "NUL in a name": {"name": "a\0b"},
    "NUL in the arguments": {"args": ["sh", "-c", "exit 0\0exit 1"]},
    "NUL in the environment": {"env": ["A=b\0C=d"]},
    "NUL in a label": {"labels": {"a": "b\0c"}},
    "an environment without a value": {"env": ["WORD"]},
    "an environment without a name": {"env": ["=x"]},
    "no command": {"args": []},
    "an empty command": {"args": [""]},
    "a relative working directory": {"cwd": "tmp"},
    "a relative root": {"rootfs": "tmp"},
    "a root and a bundle": {"bundle": "/tmp"},
    "a user with three parts": {"user": "a:b:c"},
    "a host name with a space": {"hostname": "a b"},
    "a relative mount": {"mounts": [{"source": "tmp", "destination": "/mnt"}]},
    "a mount on nothing": {"mounts": [{"source": "/tmp", "destination": ""}]},
    "a byte of memory": {"memory_bytes": 1},
    "more memory than there are numbers": {"memory_bytes": 2**64 - 1},
    "a runtime with a path in it": {"runtime": "../runc"},
    "a stop signal that is none": {"stop_signal": "NOPE"},
    "a network that is none": {"network": "bridge"},
    "a namespace with a slash": {"namespace": "a/b"},
    "a root that is not there": {"rootfs": "/no/such/root"},
    "a root that is a file": {"rootfs": "/etc/passwd"},
    "a bundle that is not there": {"rootfs": "", "args": [], "bundle": "/no/such/bundle"},
    "a bundle without config.json": {"rootfs": "", "args": [], "bundle": "/etc"},
    "a user that is not there": {"user": "nobody-of-that-name"},
    "a group that is not there": {"user": "root:nobody-of-that-name"},
}


@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_request_that_cannot_be_is_refused_with_a_reason_and_leaves_nothing(
    daemon: Daemon, client: Client, fields: dict[str, object]
) -> None:
    before = left(daemon)
    with pytest.raises(BadRequest) as caught:
        client.create(pb.ContainerSpec(**{"args": ["true"], "rootfs": "/", **fields}))  # type: ignore[arg-type]
    assert len(str(caught.value)) > 10 and "Traceback" not in str(caught.value)
    assert client.list(all_of_them=True) == ()
    until(lambda: left(daemon).bundles == before.bundles, "bundles")


def test_a_broken_config_is_refused_with_the_line(client: Client, tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text('{\n  "ociVersion": "1.0.2",\n  "process": {,\n}\n')
    with pytest.raises(BadRequest, match=r"config\.json.*line 3"):
        client.create(pb.ContainerSpec(bundle=str(tmp_path)))
    for text in ("[]", "{}", '{"process": 7, "root": []}', "null", '{"process": {"args": 3}, "root": {"path": 1}}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(BadRequest, match=r"config\.json"):
            client.create(pb.ContainerSpec(bundle=str(tmp_path)))
    assert client.list(all_of_them=True) == ()


@pytest.mark.parametrize("reference", ["", "a/b", "../c", "a b", "ä", "x\n", "a" * 65, "\0"])
def test_a_reference_that_can_be_no_container_is_refused(client: Client, reference: str) -> None:
    with pytest.raises(BadRequest):
        client.inspect(reference)


@pytest.mark.parametrize("text", ["a\nb", "ä€😀", "  ", "'\"\\$(reboot)`", "%s%n", "-rf", "x" * 100_000])
def test_arguments_and_environment_arrive_as_they_were_sent(client: Client, text: str) -> None:
    script = '[ "$1" = "$WORD" ] && [ ${#1} = $2 ] && exit 7'
    env = {"LC_ALL": "C.UTF-8", "WORD": text}
    size = str(len(text.encode()))  # a POSIX shell counts bytes or characters
    args = ("sh", "-c", script.replace("${#1} = $2", '$(printf %s "$1" | wc -c) = $2'), "sh", text, size)
    _, exit_ = lives.run(client, *args, env=[f"{key}={value}" for key, value in env.items()])
    assert word(exit_) == "exited 7"


@pytest.mark.parametrize("size", [128 << 10, 3 << 20, 5 << 20], ids=["one argument", "one message", "too much"])
def test_arguments_that_no_kernel_takes_are_an_error_and_never_a_0(client: Client, size: int) -> None:
    """A single argument may have 128 KiB, execve(2)."""
    try:
        container, exit_ = lives.run(client, "true", "x" * size)
    except ExitdError as error:
        assert len(str(error)) < 5000
        for each in client.list(all_of_them=True):  # where only the kernel saw that it is too long
            assert word(lives.last_exit(client, each.id)) == "unknown never-started"
    else:
        assert word(exit_) not in ("exited 0", "unknown monitors-killed"), container


def test_a_daemon_that_runs_out_of_descriptors_refuses_new_ones_and_keeps_the_old() -> None:
    with lives.daemon(wrapper=("prlimit", "--nofile=96:96")) as daemon, daemon.client() as client:
        containers = [up(client, "sh", "-c", "until [ -e /tmp/go ]; do sleep 0.05; done; exit 7") for _ in range(3)]
        try:
            for _ in range(60):
                containers.append(up(client, "sh", "-c", "until [ -e /tmp/go ]; do sleep 0.05; done; exit 7"))
        except ExitdError as error:
            assert "Too many open files" in str(error)
        assert 3 < len(containers) < 60
        for container in containers:
            pathlib.Path(f"/proc/{container.init.pid}/root/tmp/go").touch()
        for container in containers:
            assert word(last_exit(client, container.id)) == "exited 7"
        remove_all(client)
        assert word(lives.run(client, "true")[1]) == "exited 0"

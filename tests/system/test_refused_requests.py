"""Requests that cannot be, and odd ones that can: refused with a reason, or done as they were sent."""

import pathlib
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import BadRequest, ExitdError
from tests.system import lives
from tests.system.daemons import Daemon, left, remove_all
from tests.system.lives import word
from tests.system.waits import until


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as made:
        daemon.warm(made)
        yield made
        remove_all(made)


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
    "a network that is none": {"network": "a/b"},
    "a port that is none": {"ports": [pb.PortMapping(container_port=0)]},
    "a port for a network that is none": {"network": "none", "ports": [pb.PortMapping(container_port=80)]},
    "a port that is exposed and none": {"expose": pb.ExposeSpec(ports=["http"])},
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

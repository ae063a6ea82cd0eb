"""docs/api.md and client/examples: every example is run, and exitd answers every request for grpcurl."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (  # type: ignore[import-untyped]
    ProtoReflectionDescriptorDatabase,
)

import exitd_client
from exitd_client import Client, messages, wire
from supervisor.model.errors import CODES
from tests.system.daemons import Daemon
from tests.system.daemons import daemon as running_daemon
from tests.system.waits import until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()
EXAMPLES = sorted((ROOT / "client" / "examples").glob("*.py"))
GRPCURL = [shlex.split(line) for line in re.findall(r"^grpcurl .*$", PAGE, re.MULTILINE)]
SOCKET, SERVICE = "/run/exitd/exitd.sock", "exitd.v1.Exitd/"
SECONDS = 120.0


@pytest.fixture(scope="module")
def up() -> Iterator[Daemon]:
    with running_daemon(grpc=True) as daemon:
        yield daemon


def environment(up: Daemon) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("EXITD_")}
    return {**kept, "EXITD_STATE": str(up.state), "PYTHONPATH": str(ROOT / "client"), "PYTHONUNBUFFERED": "1"}


def run(up: Daemon, name: str, *words: str) -> str:
    command = [sys.executable, str(ROOT / "client" / "examples" / name), *words]
    done = subprocess.run(command, env=environment(up), capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_page_names_every_example_and_every_method() -> None:
    assert sorted(re.findall(r"`client/examples/(\w+\.py)`", PAGE)) == [path.name for path in EXAMPLES]
    methods = [name for name in vars(Client) if not name.startswith("_") and name != "close"]
    assert [name for name in methods if f"`{name}`" not in PAGE] == []


def test_the_page_has_every_reason_under_its_code() -> None:
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (.*) \|$", PAGE, re.MULTILINE))
    for error, code in CODES.items():
        assert f"`{error.reason}`" in rows[code.name], error


def test_what_the_page_imports_is_there() -> None:
    for names in re.findall(r"^from exitd_client import (.*)$", PAGE, re.MULTILINE):
        assert all(hasattr(exitd_client, name.strip()) for name in names.split(","))


@pytest.mark.system
def test_the_first_lines_of_the_page_print_how_it_ended(up: Daemon) -> None:
    (code,) = (block for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    code = code.replace("docker://busybox", "/")
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(up), capture_output=True, text=True, timeout=SECONDS
    )
    assert done.stdout.startswith("7 self record 20"), done
    with Client(f"{up.state}/exitd.sock") as exitd:
        exitd.rm("web")


@pytest.mark.system
def test_a_run_and_its_end_are_printed(up: Daemon) -> None:
    lines = run(up, "run_and_wait.py", "/").splitlines()
    assert lines[0] == "exited 7"
    assert lines[1].startswith("reason self, seen by record, after 0:00:")
    assert lines[2].startswith("COMMAND_NOT_FOUND: ")


@pytest.mark.system
def test_many_at_once_are_gathered(up: Daemon) -> None:
    assert run(up, "many_at_once.py", "/") == "failed: [1, 2, 3, 4]\n"


@pytest.mark.system
def test_an_exec_and_logs_are_printed(up: Daemon) -> None:
    assert run(up, "exec_and_logs.py", "/") == "3 b'hello\\ndebug\\n'\nstop\nstdout b'begun\\n'\n"


@pytest.mark.system
def test_ends_are_printed_as_they_come(up: Daemon, tmp_path: pathlib.Path) -> None:
    command = [sys.executable, str(ROOT / "client" / "examples" / "ends.py"), "1"]
    printed = tmp_path / "printed"
    with printed.open("wb") as out:
        process = subprocess.Popen(command, env=environment(up), stdout=out)
    try:
        with Client(f"{up.state}/exitd.sock") as exitd:
            exitd.run("/", ["sh", "-c", "exit 9"], name="late", auto_remove=True)
            until(lambda: " late 9 self\n" in printed.read_text(), "no end is printed")
            until(lambda: exitd.ps(all=True) == (), "it does not remove itself")
    finally:
        process.kill()
        process.wait(SECONDS)


@pytest.mark.system
def test_every_request_of_the_page_is_one_that_exitd_answers_over_reflection(up: Daemon) -> None:
    """What grpcurl does, where there is none: takes the descriptors by reflection, makes the request of the JSON, and
    calls."""
    with contextlib.closing(grpc.insecure_channel(wire.target(f"{up.state}/exitd.sock"))) as channel:
        served = ProtoReflectionDescriptorDatabase(channel)
        assert {"exitd.v1.Exitd", "grpc.health.v1.Health"} <= set(served.get_services())
        assert served.FindFileContainingSymbol("exitd.v1.ContainerSpec").package == "exitd.v1"
        answers = [_call(channel, words) for words in GRPCURL if words[-1].startswith(SERVICE)]
    assert len(answers) >= 8
    assert all(answers)
    named = {method.name for method in messages.service().methods}
    assert {words[-1].removeprefix(SERVICE) for words in GRPCURL if words[-1].startswith(SERVICE)} <= named
    with Client(f"{up.state}/exitd.sock") as exitd:
        assert exitd.ps(all=True) == ()


def _call(channel: grpc.Channel, words: list[str]) -> list[Any]:
    """Return the replies. Raises ParseError for a field that there is not, RpcError for what exitd refuses."""
    assert words[:3] == ["grpcurl", "-plaintext", "-unix"] and words[-2] == SOCKET
    method = messages.service().methods_by_name[words[-1].removeprefix(SERVICE)]
    data = json.loads(words[words.index("-d") + 1]) if "-d" in words else {}
    request = json_format.ParseDict(data, messages.message(method.input_type.name)())
    called = wire.stubs(channel)[method.name](request, timeout=SECONDS)
    return list(called) if method.server_streaming else [called]

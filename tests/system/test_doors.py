"""What nobody should ever send, through the doors of a real exitd: a named error, no more memory than before, and
others are served."""

import json
import os
import pathlib
import random
import subprocess
from typing import Any

import grpc
import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.api.table import EXITD
from supervisor.model.errors import BadRequest, ExitdError
from supervisor.runtime.oci import shape
from tests.system import hostile, warm
from tests.system.daemons import OURS, Daemon
from tests.system.exitctl import Cli
from tests.system.processes import private_kb

GROWTH_KB = 100 << 10
BUNDLES = 150  # of some 3,000 mutations
INTERNAL = "internal error"


@pytest.fixture
def bundle(tmp_path: pathlib.Path) -> dict[str, Any]:
    """The configuration that `runc spec` writes, with a part of each kind that exitd reads."""
    subprocess.run(["runc", "spec"], cwd=tmp_path, check=True)
    document: dict[str, Any] = json.loads((tmp_path / "config.json").read_text())
    document["root"] = {"path": "/", "readonly": True}
    document["process"].update(terminal=False, args=["true"])
    document["process"]["user"]["additionalGids"] = [1]
    document["annotations"] = {"a": "b"}
    document["linux"]["cgroupsPath"] = "/doors"
    document["linux"]["resources"] = {"memory": {"limit": 1 << 28}, "pids": {"limit": 10}}
    return document


def tried(client: Client, bundle: pathlib.Path) -> str:
    """What the daemon says to a container of the bundle; empty: it was made, and is removed again."""
    try:
        client.remove(client.create(pb.ContainerSpec(bundle=str(bundle))).id, force=True)
    except ExitdError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_a_bundle_with_anything_in_any_place_of_its_config_json_is_made_or_refused_by_name(
    daemon: Daemon, bundle: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    cases = [(path, name) for path in hostile.places(bundle) for name in hostile.VALUES]
    before = private_kb(daemon.pid)
    with daemon.client() as client:
        for path, name in random.Random(8).sample(cases, BUNDLES):
            document = hostile.replaced(bundle, path, hostile.VALUES[name])
            (tmp_path / "config.json").write_text(json.dumps(document))
            said = tried(client, tmp_path)
            assert INTERNAL not in said and "Unexpected" not in said, (path, name, said)
        client.version()
    assert private_kb(daemon.pid) - before < GROWTH_KB
    assert INTERNAL not in daemon.log.read_text()


@pytest.mark.parametrize("name", hostile.TEXTS)
def test_a_config_json_that_is_no_configuration_is_refused_by_name(
    daemon: Daemon, tmp_path: pathlib.Path, name: str
) -> None:
    (tmp_path / "config.json").write_bytes(hostile.TEXTS[name])
    before = private_kb(daemon.pid)
    with daemon.client() as client:
        assert tried(client, tmp_path).startswith("BadRequest: ")
        client.version()
    assert private_kb(daemon.pid) - before < GROWTH_KB


@pytest.mark.parametrize("name", hostile.VALUES)
def test_a_process_of_an_exec_is_right_or_refused_in_every_place(name: str) -> None:
    """As containerd sends one, and as a bundle has it."""
    process = {
        "args": ["sh"],
        "env": ["A=1"],
        "cwd": "/",
        "terminal": False,
        "user": {"uid": 0, "gid": 0, "additionalGids": [1]},
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1, "soft": 1}],
        "capabilities": {"bounding": ["CAP_KILL"]},
        "consoleSize": {"height": 1, "width": 1},
        "oomScoreAdj": 0,
    }
    shape.check(process, shape.PROCESS, "process")
    refused = 0
    for path in hostile.places(process):
        try:
            shape.check(hostile.replaced(process, path, hostile.VALUES[name]), shape.PROCESS, "process")
        except BadRequest as error:
            assert str(error).startswith("process.")
            refused += 1
    assert refused


@pytest.mark.parametrize("name", ["no JSON", "no text", "large"])
def test_bytes_that_are_no_request_are_refused_by_name_at_every_method(daemon: Daemon, name: str) -> None:
    data = b"\x0a\xff\xff\xff\x7f" + hostile.TEXTS[name][: 3 << 20]  # a field that claims more than there is
    with grpc.insecure_channel(f"unix:{daemon.state}/exitd.sock") as channel:
        for method in EXITD.methods:
            if method.client_streaming or method.server_streaming:
                continue
            with pytest.raises(grpc.RpcError) as raised:
                call: Any = channel.unary_unary(f"/{EXITD.full_name}/{method.name}")
                call(data, timeout=30)
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT, method.name
    assert daemon.answers()


@pytest.mark.parametrize("name", hostile.TEXTS)
def test_a_manifest_that_is_none_is_refused_by_one_line(daemon: Daemon, tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / "pod.yaml"
    path.write_bytes(hostile.TEXTS[name][: 1 << 16])  # half a second; a reader in Python
    said = Cli(daemon)("play", str(path))
    assert said.code and "Traceback" not in said.err and said.err.startswith("exitctl: "), said


@pytest.mark.parametrize("name", hostile.TEXTS)
def test_a_configuration_that_is_none_stops_the_start_with_one_named_line(tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(hostile.TEXTS[name] or b"= 1")
    words = ("--root", str(tmp_path / "r"), "--state", str(tmp_path / "s"), "--config", str(path))
    code, out, err = warm.run("exitd", OURS, words, os.environ, 60)
    text = (out + err).decode(errors="replace")
    assert code and "Traceback" not in text and "config.toml" in text, text[-2000:]

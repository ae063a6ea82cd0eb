"""`ps -s` and `system df` show true numbers: du's."""

import json
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from tests.system import daemons, images
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli

DEEP = "cd /var/tmp; i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done; echo x >file"


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with daemons.daemon() as made:
        yield made


def du(*paths: pathlib.Path) -> int:
    words = ["du", "-s", "-c", "--block-size=1", *map(str, paths)]
    return int(subprocess.run(words, capture_output=True, check=True, text=True).stdout.splitlines()[-1].split()[0])


def layer(exitctl: Cli, name: str) -> pathlib.Path:
    return exitctl.daemon.root / "c" / exitctl.field(name, ".Id") / "rootfs/layer/upper"


def size_of(exitctl: Cli, name: str) -> tuple[int, str]:
    document = json.loads(exitctl.ok("ps", "-a", "-s", "--filter", f"name={name}", "--format", "jsonl"))
    return document["SizeBytes"], document["Size"]


def kinds(exitctl: Cli) -> dict[str, tuple[int, int, int]]:
    documents = [json.loads(line) for line in exitctl.ok("system", "df", "--format", "jsonl").splitlines()]
    return {each["Type"]: (each["TotalCount"], each["Active"], each["SizeBytes"]) for each in documents}


def test_sizes_are_those_of_du(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    exitctl = Cli(daemon)
    script = "cd /var/tmp; dd if=/dev/zero of=a bs=1M count=5 2>/dev/null; ln a b; ln -s / c; echo x"
    assert exitctl.run("--name", "one", "sh", "-c", script).code == 0
    assert exitctl.run("--name", "two", "--storage", "tmpfs", "sh", "-c", script).code == 0
    exitctl.background("three", "-v", "data:/mnt", "sleep", "1000")
    exitctl.ok("exec", "three", "sh", "-c", "dd if=/dev/zero of=/mnt/a bs=1M count=3 2>/dev/null")
    exitctl.ok("volume", "create", "other")
    os.sync()  # blocks are given out when they are written
    found, text = size_of(exitctl, "one")
    assert found == du(layer(exitctl, "one")) and text.startswith("5.0") and text.endswith(" MiB")
    assert 5 << 20 <= size_of(exitctl, "two")[0] < 6 << 20
    images.layout(tmp_path / "l", t=images.small())
    exitctl.ok("image", "load", "-q", str(tmp_path / "l"))
    exitctl.ok("create", f"oci:{tmp_path}/l", "true")
    of = kinds(exitctl)
    directories = list((daemon.root / "c").iterdir())
    assert of["Images"][:2] == (1, 1)
    assert of["Volumes"] == (2, 1, du(*(daemon.root / "v").glob("*/data")))
    assert of["Image layers"] == (2, 2, du(*(daemon.root / "images/layers").iterdir()))
    on_disk = [each / "rootfs/layer/upper" for each in directories if (each / "rootfs/layer").exists()]
    assert of["Containers on disk"] == (3, 1, sum(map(du, on_disk)))
    assert of["Containers in memory"][:2] == (1, 0)
    logs = [path for each in directories for path in each.glob("container*.log*")]
    assert of["Log files"] == (len(logs), 1, du(*logs))


def test_a_tree_that_is_too_deep_is_said_to_be_more(daemon: Daemon) -> None:
    exitctl = Cli(daemon)
    assert exitctl.run("--name", "deep", "sh", "-c", DEEP).code == 0
    found, text = size_of(exitctl, "deep")
    assert 0 < found < du(layer(exitctl, "deep")) and text.endswith("+")
    assert exitctl.ok("rm", "deep") == "deep"

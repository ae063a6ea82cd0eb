"""What the tests of the store share: two images, a store, and looks at its directory."""

import json
import os
import pathlib
from collections.abc import Iterator

from supervisor.images.store import Images
from tests.supervisor.images.building import Made, folder, tar

BASE = tar(folder("bin"), ("bin/sh", b"#!"), ("etc/os", b"base"))
ABOVE = tar(("etc/os", b"above"))
PLAIN = Made([BASE], {"Cmd": ["sh"], "Env": ["A=1"]})
TALL = Made([BASE, ABOVE], {"Entrypoint": ["/bin/sh"], "User": "1:2", "WorkingDir": "/w", "StopSignal": "SIGINT"})


ABOVE_HEX = str(json.loads(TALL.config_text)["rootfs"]["diff_ids"][1]).removeprefix("sha256:")


def opened(tmp_path: pathlib.Path) -> Iterator[Images]:
    """A store that has nothing in staging when its test is over; for a fixture."""
    images = Images(str(tmp_path / "root"))
    yield images
    images.close()
    assert os.listdir(tmp_path / "root/images/staging") == []


def written(path: pathlib.Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def layers_on_disk(tmp_path: pathlib.Path) -> int:
    return len(os.listdir(tmp_path / "root/images/layers"))

"""The units beside those that tests/test_packaging.py looks into, and all of them as systemd reads them."""

import os
import pathlib
import re
import shutil
import subprocess

from tests.test_packaging import ROOT, unit


def test_the_socket_unit_hands_over_the_socket_the_daemon_would_bind_itself() -> None:
    socket = unit("exitd.socket")
    assert socket["ListenStream"] == ["/run/exitd/exitd.ttrpc"]
    assert socket["FileDescriptorName"] == ["ttrpc"]
    assert socket["SocketMode"] == ["0600"]  # the daemon opens it to the group, where there is one
    assert "Service" not in socket  # it is exitd.service by its name


if shutil.which("systemd-analyze"):

    def test_systemd_accepts_the_units(tmp_path: pathlib.Path) -> None:
        for path in (*(ROOT / "systemd").glob("*.service"), *(ROOT / "systemd").glob("*.socket")):
            # The programs must exist for the check, so it is made with one that does.
            (tmp_path / path.name).write_text(re.sub(r"/opt/exitd/bin/[\w-]+", "/bin/true", path.read_text()))
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],
            env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        mine = [line for line in (done.stdout + done.stderr).splitlines() if "exitd" in line]
        assert (done.returncode, mine) == (0, [])

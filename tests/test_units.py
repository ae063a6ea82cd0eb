"""The units beside those that tests/test_packaging.py looks into, and all of them as systemd reads them."""

import pathlib
import re
import shutil

from tests.systemdunits import verified
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
        assert verified(tmp_path, tmp_path.iterdir()) == (0, [])


def test_the_daemon_writes_no_core_for_it_holds_every_containers_environment() -> None:
    assert unit("exitd.service")["LimitCORE"] == ["0:infinity"]  # hard: what others' shims pass on to containers

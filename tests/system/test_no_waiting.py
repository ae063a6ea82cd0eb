"""No file that another can make is opened in a way that waits: traps of containers, bundles, watched directories."""

import json
import os
import pathlib

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import BadRequest
from tests.system import lives
from tests.system.daemonrig import Daemon, spec, until
from tests.system.lives import word


def test_a_containers_link_to_the_kernels_log_as_its_passwd_holds_nobody(client: Client) -> None:
    box = lives.up(
        client, "sh", "-c", "ln -sf /proc/kmsg /etc/passwd; echo up; exec sleep 1000", stop_timeout_seconds=1
    )
    follow = client.logs(pb.LogsRequest(id=box.id, follow=True))
    assert next(iter(follow)).data == b"up\n"
    follow.cancel()
    for _ in range(2):
        with pytest.raises(BadRequest, match="no user 'nobody'"):
            client.exec(box.id, pb.ExecSpec(args=["true"], user="nobody"))
    assert word(lives.run(client, "true", user="nobody")[1]) == "exited 0"  # another container's


def test_a_bundle_whose_configuration_is_a_fifo_is_refused(client: Client, tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(BadRequest, match=r"config\.json: not a regular file"):
        client.create(spec("true", rootfs="", bundle=str(tmp_path)))


def test_a_fifo_in_a_watched_directory_holds_nobody_also_after_a_restart(tmp_path: pathlib.Path) -> None:
    watched = tmp_path / "watched"
    (watched / "x").mkdir(parents=True)
    os.mkfifo(watched / "x/state.json")
    daemon = Daemon(tmp_path)
    try:
        daemon.start()
        with daemon.client() as client:
            client.watch(pb.WatchRequest(runc_root=str(watched)))
        daemon.restart()
        with daemon.client() as client:
            pid = os.getpid()
            started = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
            state = {"init_process_pid": pid, "init_process_start": started}
            (watched / "y").mkdir()
            (watched / "y/state.json.new").write_text(json.dumps(state))
            (watched / "y/state.json.new").rename(watched / "y/state.json")
            until(lambda: client.watches()[0].processes == 1, "what is beside the fifo is not seen")
    finally:
        daemon.end()

"""The main job on real containers: the code comes back, and nothing stays."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.system.daemonrig import Daemon, left, spec, until


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path).start()
    yield daemon
    daemon.end()


def test_an_exit_code_comes_back_and_nothing_stays(daemon: Daemon) -> None:
    with daemon.client() as client:
        before = left(daemon)
        container = client.create(spec("sh", "-c", "exit 7")).id
        waiting = client.begin_wait(container)
        client.start(container)
        exit_ = waiting.result(20)
        assert (exit_.kind, exit_.code, exit_.source, exit_.reason) == ("exited", 7, "record", "self")
        client.remove(container, force=False)
        until(lambda: left(daemon) == before or None, f"left: {left(daemon)}, before: {before}")

"""The main job on real containers: the code comes back, and nothing stays."""

from collections.abc import Iterator

import pytest

from tests.system import lives
from tests.system.daemonrig import Daemon, left, spec, until, warm_up


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with lives.daemon() as daemon:
        yield daemon


def test_an_exit_code_comes_back_and_nothing_stays(daemon: Daemon) -> None:
    with daemon.client() as client:
        warm_up(client)
        before = left(daemon)
        container = client.create(spec("sh", "-c", "exit 7")).id
        waiting = client.begin_wait(container)
        client.start(container)
        exit_ = waiting.result(20)
        assert exit_ is not None
        assert exit_ is not None
        assert (exit_.kind, exit_.code, exit_.source, exit_.reason) == ("exited", 7, "record", "self")
        client.remove(container, force=False)
        until(lambda: left(daemon) == before or None, f"left: {left(daemon)}, before: {before}")

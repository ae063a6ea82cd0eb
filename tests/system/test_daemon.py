"""The main job on real containers: the code comes back, and nothing stays."""

from supervisor.api.client import Client
from tests.system import lives
from tests.system.daemons import Daemon, left
from tests.system.waits import until


def test_an_exit_code_comes_back_and_nothing_stays(daemon: Daemon, client: Client) -> None:
    before = left(daemon)
    container, exit_ = lives.run(client, "sh", "-c", "exit 7")
    assert (exit_.kind, exit_.code, exit_.source, exit_.reason) == ("exited", 7, "record", "self")
    client.remove(container, force=False)
    until(lambda: left(daemon) == before, f"left: {left(daemon)}, before: {before}")

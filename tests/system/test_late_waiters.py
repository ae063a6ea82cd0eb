"""Containers that removed themselves: who asks late gets the code, by id, by the beginning of it, and by name."""

import pytest

from supervisor.api.client import Client
from supervisor.model.errors import NoSuchContainer
from tests.system import daemons, lives
from tests.system.daemons import spec
from tests.system.lives import ended, word
from tests.system.waits import LIMIT_SECONDS


def gone(client: Client, name: str, code: int) -> str:
    """The id of a container that ended with the code and removed itself."""
    id = client.create(spec("sh", "-c", f"exit {code}", name=name, auto_remove=True)).id
    removed = client.begin_wait(id, condition="removed")
    client.start(id)
    removed.result(LIMIT_SECONDS)
    return id


def late(client: Client, reference: str, run: int = 0) -> str:
    return word(ended(client.begin_wait(reference, run=run).result(LIMIT_SECONDS)))


def test_who_asks_late_gets_the_code_also_after_a_daemon_restart() -> None:
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            id = gone(client, "job", 43)
            assert [late(client, word) for word in ("job", id, id[:10])] == ["exited 43"] * 3
            assert late(client, "job", run=1) == "exited 43"
        daemon.restart()
        with daemon.client() as client:
            assert [late(client, word) for word in ("job", id, id[:10])] == ["exited 43"] * 3


def test_the_newest_of_a_name_is_meant_and_a_living_one_before_all() -> None:
    with daemons.daemon() as daemon, daemon.client() as client:
        gone(client, "job", 1)
        gone(client, "job", 2)
        assert late(client, "job") == "exited 2"
        living = client.create(spec("sh", "-c", "exit 3", name="job")).id
        waiting = client.begin_wait("job")
        client.start(living)
        assert word(ended(waiting.result(LIMIT_SECONDS))) == "exited 3"


def test_after_the_retention_only_the_full_id_is_known() -> None:
    with daemons.daemon(extra=("--exit-retention", "0")) as daemon, daemon.client() as client:
        id = gone(client, "job", 7)
        assert late(client, id) == "exited 7"
        for reference in ("job", id[:10]):
            with pytest.raises(NoSuchContainer):
                late(client, reference)


def test_who_was_removed_by_somebody_is_not_kept_by_name() -> None:
    with daemons.daemon() as daemon, daemon.client() as client:
        id, _ = lives.run(client, "sh", "-c", "exit 9", name="job")
        client.remove(id, force=False)
        assert late(client, id) == "exited 9"
        with pytest.raises(NoSuchContainer):
            late(client, "job")

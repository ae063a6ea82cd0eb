"""exitd is killed in the middle of a pause or a resume: what is shown afterwards is what is true."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Unreachable
from tests.system.daemons import daemon
from tests.system.lives import events, up
from tests.system.processes import killed
from tests.system.runtimes import Wrapper
from tests.system.waits import LIMIT_SECONDS, until


def shown(client: Client, id: str) -> int:
    """Once it has been looked up."""
    until(lambda: not client.inspect(id).recovering, "its look-up")
    return int(client.inspect(id).phase)


def test_exitd_killed_between_the_runtimes_work_and_its_own_shows_what_is_true() -> None:
    with daemon() as d:
        wrapper, done = Wrapper.make(d.base), d.base / "done"
        with d.client() as client:
            id = up(client, runtime=wrapper.name).id
        for verb, phase in (("pause", pb.PHASE_PAUSED), ("resume", pb.PHASE_RUNNING)):
            wrapper.on(verb, f'runc "$@"; touch {done}; while :; do sleep 0.02; done')
            with d.client() as client, ThreadPoolExecutor(1) as caller:
                asked = caller.submit(getattr(client, verb), id)
                until(done.exists, f"the runtime does not {verb}")
                d.kill()
                with pytest.raises(Unreachable):
                    asked.result(LIMIT_SECONDS)
            done.unlink()
            d.start()
            with d.client() as client:
                assert shown(client, id) == phase
        with d.client() as client:
            assert [e.type for e in events(client, id)][-2:] == ["pause", "resume"]
            for verb in ("pause", "resume"):  # nothing is refused for good
                wrapper.on(verb, "")
                getattr(client, verb)(id)
            client.remove(id, force=True)


def test_a_runtime_that_is_killed_after_its_pause_has_paused() -> None:
    with daemon() as d, d.client() as client, ThreadPoolExecutor(1) as caller:
        wrapper, done = Wrapper.make(d.base), d.base / "done"
        id = up(client, runtime=wrapper.name).id
        wrapper.on("pause", f'runc "$@"; echo $$ >{done}.new; mv {done}.new {done}; while :; do sleep 0.02; done')
        asked = caller.submit(client.pause, id)
        until(done.exists, "the runtime does not pause")
        killed(int(done.read_text()))
        asked.result(LIMIT_SECONDS)
        assert shown(client, id) == pb.PHASE_PAUSED
        client.remove(id, force=True)

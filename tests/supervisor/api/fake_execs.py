"""Execs that keep their word in memory, beside the fake node: they note and fail as it does."""

from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.values import By, Exit, Process, RunKey
from tests.supervisor.api.fake_node import AT_NS, FakeNode, ended


class FakeExecs:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    async def exec(self, id: str, spec: ExecSpec, by: By) -> Exec:
        self._note("exec", id, spec, by)
        key = RunKey(id, 1, "e1")
        return Exec(key, spec, ExecPhase.RUNNING, "web", "default", "boot", init=Process(7, 8), started_ns=AT_NS)

    async def kill_exec(self, id: str, exec_id: str, signal: int, everyone: bool, by: By) -> None:
        self._note("kill_exec", id, exec_id, signal, everyone, by)

    async def wait_exec(self, id: str, exec_id: str, run: int) -> Exit:
        self._note("wait_exec", id, exec_id, run)
        return ended(id, 3)

"""Who has a share in the life of containers hears of each moment, in order, whoever else does."""

import asyncio
import inspect
from pathlib import Path

from supervisor.engine.participants import Participant, Participants
from supervisor.model.lifecycle import RemoveAsked
from supervisor.model.values import By, Container, Exited, Phase, Process, Report, RunKey, Source, Spec
from tests.supervisor.fakes import in_loop, until, world
from tests.supervisor.happenings import container, exit_of

ASKED = "delays_end"  # no moment, but a question
MOMENTS = {name for name, _ in inspect.getmembers(Participant, inspect.isfunction)} - {ASKED}
TAKEN_DOWN = {"removing", "discarded"}


def recorder(name: str, heard: list[tuple[str, str]]) -> Participant:
    """A participant that notes each of its moments."""

    async def later(moment: str) -> None:
        heard.append((name, moment))

    methods: dict[str, object] = {ASKED: lambda self, container_id: True}
    for moment in MOMENTS:
        if inspect.iscoroutinefunction(getattr(Participant, moment)):
            methods[moment] = lambda self, _, moment=moment: later(moment)
        else:
            methods[moment] = lambda self, *_, moment=moment: heard.append((name, moment))
    made: Participant = type("Recorder", (Participant,), methods)()
    return made


def test_each_moment_comes_to_all_of_them_and_what_is_taken_down_in_the_reverse_order() -> None:
    heard: list[tuple[str, str]] = []
    all_of_them = Participants(recorder("first", heard), recorder("second", heard))
    report = Report(Exited(0), Source.RECORD, Process(1, 1), 1)
    for moment in sorted(MOMENTS):
        heard.clear()
        call = getattr(all_of_them, moment)
        if moment == "changed":
            call(container())
        elif moment == "exec_ended":
            call(RunKey("c1", 1, "e1"), report)
        elif moment == "being_stored":
            call(exit_of(1))
        elif moment in ("turning", "turned"):
            call("c1")
        else:
            asyncio.run(call("c1"))
        order = ["second", "first"] if moment in TAKEN_DOWN else ["first", "second"]
        assert heard == [(name, moment) for name in order]


@in_loop
async def test_a_whole_life_brings_each_of_its_moments(tmp_path: Path) -> None:
    heard: list[tuple[str, str]] = []
    phases: list[Phase] = []

    class Listener(Participant):
        def changed(self, container: Container) -> None:
            phases.append(container.phase)

    async with world(tmp_path) as w:
        w.join(recorder("one", heard), Listener())
        id = await w.running(Spec(name="one"))
        w.manager.ends(id)
        await until(lambda: w.node.containers[id].clean)
        await w.node.apply(id, RemoveAsked(By(), ""))
        await until(lambda: id not in w.node.containers)
    moments = [moment for _, moment in heard if moment != "changed"]
    begun, over = ["before_make", "turning", "turned"], ["before_end", "before_clean_up", "after_clean_up"]
    assert moments == [*begun, *over, "removing", "discarded"]
    assert {Phase.RUNNING, Phase.EXITED, Phase.REMOVING} <= set(phases)

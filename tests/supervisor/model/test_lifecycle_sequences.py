"""Any sequence of happenings, beside a model that only knows what is really on the machine."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervisor.model import lifecycle as life
from supervisor.model import restart
from supervisor.model.errors import WrongState
from supervisor.model.lifecycle import Moment, Step
from supervisor.model.values import (
    LIVE,
    Asked,
    By,
    Container,
    Exit,
    Exited,
    ExitStatus,
    Phase,
    Policy,
    Reason,
    Signaled,
    Spec,
    Unknown,
)
from tests.supervisor.happenings import ALL, INIT, SHIM, USER, ended, moment

STATUSES = st.one_of(
    st.integers(0, 255).map(Exited),
    st.builds(Signaled, st.integers(1, 64), st.booleans()),
    st.builds(Unknown, st.just("monitors-killed"), st.none() | st.integers(0, 255)),
)
ASKS = st.builds(
    Asked,
    st.sampled_from((Reason.STOP, Reason.KILL, Reason.HEALTH, Reason.PAUSE_EXIT)),
    st.sampled_from((USER, By(policy="health"))),
    st.sampled_from((9, 10, 15, 28)),
)
POLICIES = ("no", "always", "on-failure", "on-failure:2", "unless-stopped")
RULES = st.lists(st.sampled_from(("exit in 0,137 => restart", "exit not in 0 => no", "exit in 0 => no")), max_size=2)


class Life(RuleBasedStateMachine):
    """The machine has a run with a process in it, or remains of one, or nothing."""

    @initialize(policy=st.sampled_from(POLICIES), auto_remove=st.booleans(), rules=RULES, member=st.booleans())
    def born(self, policy: str, auto_remove: bool, rules: list[str], member: bool) -> None:
        self.now = 100
        spec = Spec(
            name="web",
            restart=restart.parse(policy),
            restart_rules=restart.parse_rules(rules),
            auto_remove=auto_remove and policy == "no" and not any("=> restart" in rule for rule in rules),
            sandbox="p1" if member else "",
        )
        self.container: Container | None = life.born("c1", spec, self.moment())
        self.ledger: list[Exit] = []
        self.begun = [1]  # run numbers
        self.oom_told = 0  # of this run, by events
        self.live = False  # is there an init
        self.remains = True  # might anything of a run be left on the machine
        self.waiting_for_files = False

    def moment(self) -> Moment:
        self.now += 1
        return moment(self.now)

    def apply(self, happening: life.Happening) -> Step:
        assert self.container is not None
        before = self.container
        step = life.step(before, happening, self.moment())
        self.container = step.container
        self.ledger += step.exits
        self.check_step(before, step)
        return step

    def check_step(self, before: Container, step: Step) -> None:
        stored = [event.exit for event in step.events if event.exit is not None]
        assert stored == list(step.exits)
        logged = [effect.exit for effect in step.effects if isinstance(effect, life.LogExit)]
        assert logged == list(step.exits)
        for event in step.events:
            assert event.pod_id == before.spec.sandbox
            if event.type == "oom":
                kills = int(dict(event.attributes)["kills"])
                assert kills > self.oom_told
                self.oom_told = kills
        for exit_ in step.exits:
            assert exit_.oom.kills == self.oom_told
            assert not exit_.oom.init or exit_.status == Signaled(9)
        after = step.container
        if after is None or (after.phase, after.run) != (before.phase, before.run):
            silent = {Phase.STARTING, Phase.CREATING, Phase.REMOVING, Phase.EXITED, Phase.RESTARTING, Phase.CREATED}
            assert step.events or (after is not None and after.phase in silent)
        if any(isinstance(effect, life.Discard) for effect in step.effects):
            assert not self.live and not self.waiting_for_files
            self.waiting_for_files = True

    def phase_is(self, *phases: Phase) -> bool:
        return self.container is not None and self.container.phase in phases

    # what the world does

    @precondition(lambda self: self.phase_is(Phase.CREATING))
    @rule(works=st.booleans())
    def create_returns(self, works: bool) -> None:
        self.apply(life.Made(INIT, SHIM) if works else life.MakeFailed("no such file"))
        self.live = works

    @precondition(lambda self: self.phase_is(Phase.CREATED))
    @rule()
    def start_is_asked(self) -> None:
        self.apply(life.StartAsked(USER))

    @precondition(lambda self: self.phase_is(Phase.STARTING))
    @rule(works=st.booleans())
    def start_returns(self, works: bool) -> None:
        self.apply(life.Started(self.now * 10**9) if works else life.StartFailed("broken"))

    @precondition(lambda self: self.phase_is(Phase.RUNNING, Phase.PAUSED))
    @rule()
    def is_frozen_or_thawed(self) -> None:
        self.apply(life.Paused() if self.phase_is(Phase.RUNNING) else life.Resumed())

    @precondition(lambda self: self.phase_is(*LIVE))
    @rule(asked=ASKS)
    def end_is_asked(self, asked: Asked) -> None:
        stopped = self.container is not None and self.container.stopped_by_user
        self.apply(life.EndAsked(asked))
        assert self.container is not None and (self.container.stopped_by_user or not stopped)

    @precondition(lambda self: self.phase_is(Phase.RUNNING, Phase.PAUSED))
    @rule(kills=st.integers(1, 2))
    def init_outlives_others(self, kills: int) -> None:
        assert self.container is not None
        seen = life.OomSeen(self.container.run, kills)
        if kills > self.oom_told:
            assert self.apply(seen).events
        else:
            with pytest.raises(WrongState):
                self.apply(seen)

    @precondition(lambda self: self.live)
    @rule(status=STATUSES, oom_kills=st.integers(0, 2), rebooted=st.booleans(), with_sandbox=st.booleans())
    def init_ends(self, status: ExitStatus, oom_kills: int, rebooted: bool, with_sandbox: bool) -> None:
        assert self.container is not None
        before = self.container
        with_sandbox = with_sandbox and bool(before.spec.sandbox)
        step = self.apply(replace(ended(status, oom_kills, rebooted=rebooted), sandbox_ended=with_sandbox))
        self.live, self.remains = False, True
        (exit,) = step.exits
        assert (exit.key.run, exit.status) == (before.run, status)
        self.check_decision(before, exit)

    def check_decision(self, before: Container, exit: Exit) -> None:
        assert self.container is not None
        words = {Phase.EXITED: "ended", Phase.RESTARTING: "restart", Phase.REMOVING: "remove"}
        assert exit.decision == words[self.container.phase]
        always = before.spec.restart.policy is Policy.ALWAYS
        if (before.spec.restart.policy is Policy.NO and not exit.rule) or (before.stopped_by_user and not always):
            assert exit.decision != "restart"
        if exit.rule:
            assert exit.rule.endswith("restart") == (exit.decision == "restart")
            assert not isinstance(exit.status, Unknown) and not before.stopped_by_user
        if exit.reason is Reason.PAUSE_EXIT:
            assert exit.decision != "restart"
        elif before.asked is None:
            assert exit.reason in (Reason.SELF, Reason.OOM, Reason.UNKNOWN)
            assert exit.by == By()

    @precondition(lambda self: self.remains and self.phase_is(Phase.EXITED, Phase.RESTARTING, Phase.REMOVING))
    @rule()
    def is_cleaned_up(self) -> None:
        assert not self.live
        step = self.apply(life.Cleaned())
        self.remains = False
        if self.phase_is(Phase.RESTARTING):
            assert [type(effect) for effect in step.effects] == [life.ArmTimer]

    @precondition(lambda self: self.phase_is(Phase.EXITED, Phase.RESTARTING))
    @rule(by=st.sampled_from((None, USER)))
    def runs_again(self, by: By | None) -> None:
        if self.remains or (by is None and self.phase_is(Phase.EXITED)):
            with pytest.raises(WrongState):
                self.apply(life.Again(by))
            return
        self.apply(life.Again(by))
        assert self.container is not None
        self.begun.append(self.container.run)
        self.remains = True
        self.oom_told = 0

    @precondition(lambda self: self.phase_is(Phase.RESTARTING))
    @rule()
    def its_sandbox_is_gone(self) -> None:
        assert self.container is not None
        stopped = self.container.stopped_by_user
        self.apply(life.SandboxGone())
        assert self.phase_is(Phase.EXITED) and self.container.stopped_by_user == stopped

    @precondition(lambda self: self.phase_is(Phase.EXITED, Phase.RESTARTING))
    @rule(
        happening=st.sampled_from(
            (life.StopAsked(USER), life.StopAsked(USER, Reason.KILL), life.RemoveAsked(USER), life.Rebooted())
        )
    )
    def something_happens_after_the_end(self, happening: life.Happening) -> None:
        before = self.container
        self.apply(happening)
        assert before is not None and self.container is not None
        if isinstance(happening, life.StopAsked):
            assert self.phase_is(Phase.EXITED)

    @precondition(lambda self: self.waiting_for_files)
    @rule()
    def files_are_removed(self) -> None:
        assert not self.remains
        self.apply(life.Removed())
        self.waiting_for_files = False
        assert self.container is None

    @precondition(lambda self: self.container is None)
    @rule(policy=st.sampled_from(POLICIES))
    def the_next_one_is_born(self, policy: str) -> None:
        self.born(policy, auto_remove=False, rules=[], member=False)

    @precondition(lambda self: self.container is not None)
    @rule(happening=st.sampled_from(ALL))
    def a_step_is_a_function(self, happening: life.Happening) -> None:
        outcomes = [self.outcome(happening, moment(self.now)) for _ in range(2)]
        assert outcomes[0] == outcomes[1]

    def outcome(self, happening: life.Happening, at: Moment) -> Step | None:
        assert self.container is not None
        try:
            return life.step(self.container, happening, at)
        except WrongState:
            return None

    # what is always so

    @invariant()
    def every_run_that_ended_is_in_the_ledger_once(self) -> None:
        runs = [exit.key.run for exit in self.ledger]
        assert runs == sorted(set(runs))
        assert set(runs) <= set(self.begun)

    @invariant()
    def run_numbers_only_grow(self) -> None:
        assert self.begun == list(range(1, len(self.begun) + 1))

    @invariant()
    def the_container_says_what_is_so(self) -> None:
        for c in self.existing():
            assert (c.phase in LIVE) == self.live
            assert (c.phase is Phase.RESTARTING) == (c.restart_at is not None)
            assert (c.init is not None) == self.live
            assert c.clean == (not self.remains)
            assert c.exit == (self.ledger[-1] if self.ledger else None)
            assert c.asked is None or self.live

    @invariant()
    def a_limited_policy_stays_within_its_limit(self) -> None:
        for c in self.existing():
            limit = c.spec.restart.max_retries
            assert not limit or c.failures <= limit

    def existing(self) -> Iterator[Container]:
        if self.container is not None:
            yield self.container


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

"""How a run is ended: the stop signal, grace, SIGKILL, and a search for what keeps its init from dying of that."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import structlog

from shim.frozen import replace
from supervisor.engine.containers import Containers, Test, is_ended, is_made, is_over
from supervisor.engine.execlife import Execs
from supervisor.engine.hooks import HookRunner
from supervisor.engine.node import END_SEEN_SECONDS, GONE_SECONDS, Node
from supervisor.engine.participants import Participant
from supervisor.model import lifecycle
from supervisor.model.errors import ExitdError, TimedOut, WrongState
from supervisor.model.values import (
    LIVE,
    SECOND_NS,
    Asked,
    BootTime,
    By,
    Container,
    HookAction,
    HookKind,
    HookStage,
    Phase,
    Reason,
    RunKey,
)
from supervisor.runtime.managers import ContainerRuntimes
from supervisor.system.clock import boot_now

STUCK_SECONDS = 2.0  # from SIGKILL to the search for what keeps init from dying
DEATH_SECONDS = 10.0  # from then to the stored exit
AGAIN_SECONDS = 5.0  # until an end that could not be completed is tried again

log = structlog.get_logger(__name__)


async def made(containers: Containers, container: Container) -> Container:
    """Return the container once a create that is under way has come to something. Raises TimedOut, NoSuchContainer."""
    await containers.until(container.id, is_made, GONE_SECONDS, "its create")
    return containers.known(container.id)


class Ending(Participant):
    """Ends runs, for callers and for policies.

    An end that takes time (by a policy, or with a hook before the stop signal) is stored with its run and the time of
    its SIGKILL when it begins: the next exitd completes it, whichever request or policy it came from.
    """

    def __init__(self, node: Node, manager: ContainerRuntimes, execs: Execs, hooks: HookRunner) -> None:
        self._node = node
        self._containers = node.containers
        self._manager = manager
        self._execs = execs
        self._hooks = hooks
        self._going: dict[str, int] = {}  # by container: how many in this exitd are at its end
        self._hooks_under_way: dict[tuple[str, int], asyncio.Future[None]] = {}  # by container and run

    async def by_policy(
        self,
        id: str,
        reason: Reason,
        by: By,
        grace_seconds: float | None = None,
        run: int = 0,
        *,
        final: bool = False,
    ) -> None:
        """What a policy ends: as `stop`, but at the policy's wish and no caller's. No grace: the container's own. One
        that is ending by itself is not said to have been ended by the policy. `run`: that one and no other; 0: the
        current one. `final`: no policy begins another run after it."""
        container = await made(self._containers, await self._containers.find(id))
        if run and container.run != run:
            return
        if self._node.is_ending(container):
            with contextlib.suppress(TimedOut):
                await self._containers.until(container.id, is_over(container.run), END_SEEN_SECONDS, "its end")
                return
        if container.phase in LIVE:
            grace = container.spec.stop_timeout_seconds if grace_seconds is None else grace_seconds
            asked = Asked(reason, by, container.spec.stop_signal)
            if container.spec.task is not None:
                await self._end(container, asked, grace, final=final)
            elif grace > 0 and not self._is_deaf(container):
                await self._node.whole(self._end_kept(container, asked, grace, final=final))
            else:
                await self._node.whole(self._kill_kept(container, asked, final=final))

    async def end(self, container: Container, reason: Reason, by: By, grace_seconds: float, signal: int = 0) -> None:
        """The hook, the stop signal, grace, SIGKILL; returns once the exit is stored. An init that was not started, or
        is frozen, does not hear anything but SIGKILL; one that exitd has frozen is thawed first. `signal`: instead of
        the container's own stop signal."""
        asked = Asked(reason, by, signal or container.spec.stop_signal)
        has_hook = container.spec.hooks.pre_stop is not None and reason is not Reason.KILL
        if has_hook and grace_seconds > 0 and not self._is_deaf(container):
            await self._node.whole(self._end_kept(container, asked, grace_seconds, final=False))
            return
        until = boot_now(self._node.clock).later(int(grace_seconds * SECOND_NS))
        try:
            await self._end(container, asked, grace_seconds, final=False)
        except (ExitdError, OSError):
            if container.spec.task is None:
                await self._keep_failed(container, asked, until)
            raise

    async def _keep_failed(self, container: Container, asked: Asked, until: BootTime) -> None:
        """Go on with an end that a caller has begun and that has failed: no probe ends that run any more."""
        now = self._containers.get(container.id)
        begun = now is not None and now.run == container.run and now.phase in LIVE and _is_noted(now, asked)
        if not begun or self._node.is_ending(container):
            return
        with self._at_it(container.id):
            try:
                now = await self._node.apply(container.id, lifecycle.EndAsked(asked, container.run, until))
            except (ExitdError, OSError) as error:
                log.warning("an end that has failed is not taken up", container=container.id, why=str(error))
                return
            assert now is not None
            self._node.spawn(self._take_up(now, asked, AGAIN_SECONDS))

    async def _end(self, container: Container, asked: Asked, grace_seconds: float, *, final: bool) -> None:
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        gently = asked.reason is not Reason.KILL and grace_seconds > 0 and await self._hears(container, grace_seconds)
        left = grace_seconds - (loop.time() - asked_at)  # the signal may take its time, a thaw may not
        if gently and await self._heard(container, asked, final=final):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._containers.until(container.id, _is_over_or_gone(container.run), None, "its end")
                    return
        await self._kill(container, asked, final=final)

    def _is_deaf(self, container: Container) -> bool:
        """Return whether it does not hear anything but SIGKILL, now and until a request starts or resumes it."""
        is_frozen = container.phase is Phase.PAUSED and container.id not in self._node.frozen
        return container.phase is Phase.CREATED or is_frozen

    async def _hears(self, container: Container, seconds: float) -> bool:
        """Wait for the thaw of what exitd itself has frozen. Return whether it hears a signal."""
        if container.id in self._node.frozen:
            frozen, is_over = self._node.frozen, _is_over_or_gone(container.run)
            with contextlib.suppress(TimedOut):
                await self._containers.until(
                    container.id, lambda c: container.id not in frozen or is_over(c), seconds, "its thaw"
                )
        now = self._containers.get(container.id, container)
        return now.phase not in (Phase.CREATED, Phase.PAUSED)

    async def _kill(self, container: Container, asked: Asked, *, final: bool, until: BootTime | None = None) -> None:
        """Kill that run, and wait until its exit is stored. `until`: as of EndAsked."""
        is_over = _is_over_or_gone(container.run)
        killed = replace(asked, signal=lifecycle.SIGKILL)
        await self.signal(container, killed, run=container.run, final=final, until=until)
        with contextlib.suppress(TimedOut):
            await self._containers.until(container.id, is_over, STUCK_SECONDS, "its end after SIGKILL")
            return
        self.unstick(container)
        await self._containers.until(container.id, is_over, DEATH_SECONDS, "its end after SIGKILL")

    # -- ends that the next exitd completes

    async def _end_kept(self, container: Container, asked: Asked, grace_seconds: float, *, final: bool) -> None:
        until = boot_now(self._node.clock).later(int(grace_seconds * SECOND_NS))
        with self._at_it(container.id):
            happening = lifecycle.EndAsked(asked, container.run, until, final)
            try:
                now = await self._node.apply(container.id, happening)
            except WrongState:
                if not self._is_past(container):
                    raise
                return  # that run has ended, and no other was meant
            assert now is not None
            try:
                await self._complete(now, asked)
            except (ExitdError, OSError):
                self._node.spawn(self._take_up(now, asked, AGAIN_SECONDS))  # perhaps no caller asks again
                raise

    async def _kill_kept(self, container: Container, asked: Asked, *, final: bool) -> None:
        """As `_end_kept`, of what gets no time, or does not hear anything but SIGKILL."""
        with self._at_it(container.id):
            try:
                await self._kill(container, asked, final=final, until=boot_now(self._node.clock))
            except (ExitdError, OSError):
                now = self._containers.get(container.id)
                if now is not None and _is_to_end(now, container.run):
                    self._node.spawn(self._take_up(now, asked, AGAIN_SECONDS))
                raise

    def changed(self, container: Container) -> None:
        """Take up what an exitd before this one had begun to end."""
        if not _is_to_end(container, container.run) or self._node.closing:
            return
        if container.id in self._going or container.id in self._containers.recovering or container.asked is None:
            return
        self._node.spawn(self._take_up(container, container.asked))

    async def _take_up(self, container: Container, asked: Asked, after_seconds: float = 0.0) -> None:
        """Complete an end that was begun, however often that fails at first."""
        signal = container.spec.stop_signal if asked.signal in (0, lifecycle.SIGKILL) else asked.signal
        run, asked = container.run, replace(asked, signal=signal)
        with self._at_it(container.id):
            await asyncio.sleep(after_seconds)
            while (now := self._containers.get(container.id)) is not None and _is_to_end(now, run):
                log.info("an end that was begun goes on", container=now.id, run=run, reason=asked.reason.value)
                try:
                    return await self._complete(now, asked)
                except (ExitdError, OSError) as error:
                    log.warning("an end that was begun", container=now.id, why=str(error))
                await asyncio.sleep(AGAIN_SECONDS)

    @contextlib.contextmanager
    def _at_it(self, container_id: str) -> Iterator[None]:
        self._going[container_id] = self._going.get(container_id, 0) + 1
        try:
            yield
        finally:
            self._going[container_id] -= 1
            if not self._going[container_id]:
                del self._going[container_id]

    async def _complete(self, container: Container, asked: Asked) -> None:
        """The hook, the stop signal, SIGKILL at the time that is stored; what is past that time gets SIGKILL alone."""
        assert container.ending is not None
        is_over, until = _is_over_or_gone(container.run), container.ending.until
        left = until.seconds_after(boot_now(self._node.clock))
        if left > 0 and await self._hears(container, left):
            await self._pre_stop(container, until)
            if not is_over(self._containers.get(container.id)):
                await self._pass_on(container, asked.signal)
            with contextlib.suppress(TimedOut):
                left = until.seconds_after(boot_now(self._node.clock))
                await self._containers.until(container.id, is_over, left, "its end")
                return
        await self._kill(container, asked, final=False)

    async def _pass_on(self, container: Container, signal: int) -> None:
        """That it was asked for is stored already. Who does not get it is killed when the time has come."""
        try:
            await self._manager.of(container).kill_process(container, signal)
        except (ExitdError, OSError) as error:
            log.warning("the stop signal did not get through", container=container.id, why=str(error))

    async def _pre_stop(self, container: Container, until: BootTime) -> None:
        """Run the hook, or wait for it where another caller's end has begun it; no longer than the grace lasts."""
        action = container.spec.hooks.pre_stop
        seconds = until.seconds_after(boot_now(self._node.clock))
        if action is None or seconds <= 0:
            return
        key = (container.id, container.run)
        done = self._hooks_under_way.get(key)
        if done is None:
            if container.ending is not None and container.ending.pre_stop is not HookStage.NOT_YET:
                return
            done = self._hooks_under_way[key] = asyncio.get_running_loop().create_future()
            self._node.spawn(self._run_pre_stop(container, action, seconds, done))
        over: asyncio.Future[Any] = asyncio.ensure_future(
            self._containers.until(container.id, _is_over_or_gone(container.run), None, "")
        )
        try:
            await asyncio.wait([done, over], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()

    async def _run_pre_stop(
        self, container: Container, action: HookAction, seconds: float, done: "asyncio.Future[None]"
    ) -> None:
        """The hook ends with its run, whatever it waits for."""
        once = asyncio.ensure_future(self._hooks.once(container, HookKind.PRE_STOP, action, seconds))
        over: asyncio.Future[Any] = asyncio.ensure_future(
            self._containers.until(container.id, _is_over_or_gone(container.run), None, "")
        )
        try:
            await asyncio.wait([once, over], return_when=asyncio.FIRST_COMPLETED)
            if once.done():
                once.result()
        except (ExitdError, OSError) as error:
            log.warning("before its stop signal", container=container.id, why=str(error))
        finally:
            once.cancel()
            over.cancel()
            del self._hooks_under_way[container.id, container.run]
            if not done.done():
                done.set_result(None)

    def _is_past(self, container: Container) -> bool:
        """Whether the run of this snapshot is over, or about to be."""
        now = self._containers.get(container.id)
        return now is None or now.run != container.run or is_ended(now) or self._node.is_ending(now)

    # -- signals

    async def _heard(self, container: Container, asked: Asked, *, final: bool) -> bool:
        """False: the shim that is to pass the signal on does not answer. There is no grace to wait for then, and
        SIGKILL has other ways."""
        try:
            await self.signal(container, asked, run=container.run, final=final)
        except TimedOut as error:
            log.warning("the stop signal did not get through, SIGKILL follows", container=container.id, why=str(error))
            return False
        return True

    async def signal(
        self,
        container: Container,
        asked: Asked,
        *,
        everyone: bool = False,
        run: int = 0,
        final: bool = False,
        until: BootTime | None = None,
    ) -> None:
        """Recorded first: should the daemon die in between, the exit still carries its reason. Nothing is signalled
        whose end is on its way; that may be of before this daemon, and there was never a process to signal."""
        try:
            current = await self._node.apply(container.id, lifecycle.EndAsked(asked, run, until, final))
            assert current is not None
            await self._manager.of(current).kill_process(current, asked.signal, everyone=everyone)
        except WrongState:
            now = self._containers.get(container.id)
            is_another = run != 0 and now is not None and now.run != run
            if not (is_another or is_ended(now) or self._node.is_ending(container)):
                raise

    def unstick(self, container: Container) -> None:
        """The first process of a pid namespace dies when all others in it are reaped: execs, and the members of its pod
        and theirs. A shim that is stopped reaps none of them: it is killed, and the keeper does."""
        members = self._containers.members(container.id)
        for member in members:
            if member.spec.pid == "pod":
                self._manager.kill_stopped_shim(RunKey(member.id, member.run))
        for each in (container, *members):
            self._execs.unstick(each.id)


def _is_noted(container: Container, asked: Asked) -> bool:
    """Return whether this end was recorded, and not only a signal before it that ends nothing."""
    noted = container.asked
    return container.stopped_by_user or (noted is not None and (noted.reason, noted.by) == (asked.reason, asked.by))


def _is_to_end(container: Container, run: int) -> bool:
    """Return whether this run lives, and its end was begun."""
    begun = container.ending is not None and container.ending.run == run
    return begun and container.run == run and container.phase in LIVE


def _is_over_or_gone(run: int) -> Test:
    """Return the test whether this run is over, whatever has become of the container since."""
    return lambda c: c is None or c.run != run or is_ended(c)

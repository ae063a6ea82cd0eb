"""Pods for callers and their policies, kept. A pod is its pause container: where one is named, the other is meant."""

import asyncio
import contextlib
import math
from collections.abc import Callable

import structlog

from shim.frozen import replace
from supervisor.engine.containers import is_over
from supervisor.engine.ending import DEATH_SECONDS, Ending
from supervisor.engine.ledger import Ledger
from supervisor.engine.node import GONE_SECONDS, Node
from supervisor.engine.operations import Operations, each_member
from supervisor.engine.participants import Participant
from supervisor.engine.runs import START_FAILED, Runs
from supervisor.engine.views import Views
from supervisor.model import filters, lifecycle, pods
from supervisor.model.errors import ExitdError, NoSuchContainer, RuntimeFailed, WrongState
from supervisor.model.pods import Duty, PodState
from supervisor.model.values import LIVE, By, Container, Exit, Phase, Pod, Reason, RunKey, Spec
from supervisor.model.views import PodView
from supervisor.system.clock import boot_now

# -- policies


PAUSE_EXIT = By(policy="pause-exit")
NEW_SANDBOX = By(policy="new-sandbox")
LAST_MEMBER = By(policy="last-member")
DEADLINE = By(policy="active-deadline")
EVICTION = By(policy="size-limit")
EVICTION_SECONDS = 1.0  # the grace of what is evicted: the kubelet's own, since a disk may be filling
MOST_TIMER_SECONDS = 86_400.0  # asyncio's clock stands still while the machine is suspended; so it looks now and then
LEAST_GRACE_SECONDS = 2.0  # of a sidecar, however long the others took: Kubernetes' own

log = structlog.get_logger(__name__)


class PodKeeper(Participant):
    """Looks at a pod after each of its changes and does what `pods.duties` says. It remembers only what it is at: a
    duty that failed is found again at the next look."""

    def __init__(self, node: Node, operations: Operations, ending: Ending) -> None:
        self._node = node
        self._operations = operations
        self._ending = ending
        self._at: set[str] = set()  # containers something is being done about
        self._deadlines: dict[str, asyncio.TimerHandle] = {}

    async def forever(self, every_seconds: Callable[[], float]) -> None:
        """Look at all pods again and again, slowly. A pause process that another program has killed may hang in its
        exit: see `Ending.unstick`."""
        while True:
            await asyncio.sleep(every_seconds())
            try:
                self.look_at_all()
                self._unstick()
            except Exception:  # out of descriptors, say: the next round finds what this one has not done
                log.exception("a look at the pods failed")

    def _unstick(self) -> None:
        for container in list(self._node.containers.values()):
            if container.spec.pod and container.phase in LIVE and self._node.manager.of(container).is_ending(container):
                self._ending.unstick(container)

    def look_at_all(self) -> None:
        """Look at every pod: after a daemon start, and now and then."""
        for container in list(self._node.containers.values()):
            if container.spec.pod:
                self._look(container.id)

    def changed(self, container: Container) -> None:
        pod = container.id if container.spec.pod else container.spec.sandbox
        if pod:
            self._look(pod)

    def _look(self, pod_id: str) -> None:
        pause = self._node.containers.get(pod_id)
        if pause is None or pause.spec.pod is None or pod_id in self._node.containers.recovering:
            return
        if self._node.closing or self._node.going_down:
            return
        self._arm(pause)
        for duty, container in self._duties(pause):
            if container.id not in self._at and container.id not in self._node.containers.recovering:
                self._at.add(container.id)
                self._node.spawn(self._do(duty, container, pod_id))

    def _duties(self, pause: Container) -> list[tuple[Duty, Container]]:
        return pods.duties(pause, self._node.containers.members(pause.id), boot_now(self._node.clock))

    def _arm(self, pause: Container) -> None:
        """Look again when its time is over. The timer is of this exitd, the time is stored."""
        timer, now = self._deadlines.pop(pause.id, None), boot_now(self._node.clock)
        if timer is not None:
            timer.cancel()
        if pause.deadline is not None and pause.deadline.at.boot_id == now.boot_id and not pods.is_expired(pause, now):
            seconds = min(pause.deadline.at.seconds_after(now), MOST_TIMER_SECONDS)
            self._deadlines[pause.id] = asyncio.get_running_loop().call_later(seconds, self._look, pause.id)

    def close(self) -> None:
        for timer in self._deadlines.values():
            timer.cancel()

    async def discarded(self, container_id: str) -> None:
        timer = self._deadlines.pop(container_id, None)
        if timer is not None:
            timer.cancel()

    async def _do(self, duty: Duty, container: Container, pod_id: str) -> None:
        log.info("pod policy", pod=pod_id, duty=duty.value, container=container.id)
        try:
            match duty:
                case Duty.STOP if container.id == pod_id:
                    # For good: no policy of the pause container's makes a sandbox that no member is left to join.
                    await self._ending.by_policy(container.id, Reason.STOP, LAST_MEMBER, run=container.run, final=True)
                case Duty.STOP:
                    await self._ending.by_policy(container.id, Reason.PAUSE_EXIT, PAUSE_EXIT)
                case Duty.DISMISS if container.phase is Phase.RESTARTING:
                    await self._node.apply(container.id, lifecycle.StopAsked(LAST_MEMBER), patient=True)
                case Duty.DISMISS:
                    await self._ending.by_policy(container.id, Reason.STOP, LAST_MEMBER, run=container.run, final=True)
                case Duty.EXPIRE if container.phase is Phase.RESTARTING:
                    await self._node.apply(container.id, lifecycle.StopAsked(DEADLINE), patient=True)
                case Duty.EXPIRE:
                    await self._ending.by_policy(container.id, Reason.TIMEOUT, DEADLINE, run=container.run, final=True)
                case Duty.EVICT if container.phase is Phase.RESTARTING:
                    await self._node.apply(container.id, lifecycle.StopAsked(EVICTION), patient=True)
                case Duty.EVICT:
                    evicted = (Reason.EVICTED, EVICTION, EVICTION_SECONDS)
                    await self._ending.by_policy(container.id, *evicted, run=container.run, final=True)
                case Duty.CANCEL:
                    await self._node.apply(container.id, lifecycle.SandboxGone(), patient=True)
                case Duty.REVIVE:
                    await self._operations.start(container.id, NEW_SANDBOX)
                case Duty.REMOVE:
                    with contextlib.suppress(NoSuchContainer):
                        await self._operations.remove(container.id, True, PAUSE_EXIT)
        except (ExitdError, OSError) as error:
            log.warning("pod policy failed", pod=pod_id, duty=duty.value, container=container.id, why=str(error))
        finally:
            self._at.discard(container.id)
            # What changed meanwhile was not looked at for this container.
            asyncio.get_running_loop().call_soon(self._again, container.id, pod_id, duty)

    def _again(self, container_id: str, pod_id: str, duty: Duty) -> None:
        pause, now = self._node.containers.get(pod_id), self._node.containers.get(container_id)
        if pause is None or now is None or pause.spec.pod is None:
            return
        if (duty, now) not in self._duties(pause):
            self._look(pod_id)  # another duty than the one that has just failed: that one waits for the next change

    async def removing(self, container_id: str) -> None:
        """Before the pod's own files go: its members use them as long as there are any. The duties remove those."""
        while members := self._node.containers.members(container_id):
            await self._node.containers.until(
                members[0].id, lambda c: c is None, GONE_SECONDS, "its removal with its pod"
            )


# -- calls
#
# What callers ask for of pods. A pod is its pause container: where one is named, the other is meant.


class PodOperations:
    """Implements `supervisor.api.servicers.Pods`."""

    def __init__(self, runs: Runs, operations: Operations, views: Views, ledger: Ledger) -> None:
        """`operations`: what is asked of a pod's containers."""
        self._runs = runs
        self._node = runs.node
        self._operations = operations
        self._views = views
        self._ledger = ledger

    async def run_pod(self, spec: Spec, by: By) -> PodView:
        """Make and start the pod's pause container. After a failure nothing of it is left; what cannot be removed is
        logged. Raises what `Operations.create` and `Runs.launch` raise; RuntimeFailed when the pause container ended
        before the pod was ready."""
        container = await self._operations.create(replace(spec, pod=spec.pod or Pod()), by)
        try:
            return self._views.of_pod(await self._started(container, by))
        except (ExitdError, OSError, asyncio.CancelledError):
            try:
                await self._operations.remove(container.id, True, by)
            except ExitdError as error:
                if not isinstance(error, NoSuchContainer):
                    log.error("what came of a failed run_pod is not removed", pod=container.id, why=str(error))
            raise

    async def _started(self, pause: Container, by: By) -> Container:
        """Running. RuntimeFailed when it has ended by now, whether that is stored already or not."""
        failure: ExitdError | None = None
        try:
            await self._runs.launch(pause.id)
        except (WrongState, RuntimeFailed) as error:  # because it had ended before it could be started?
            failure = error
        if RunKey(pause.id, pause.run) in self._node.pending:
            await self._node.containers.until(
                pause.id, is_over(pause.run), DEATH_SECONDS, "the end of its pause container"
            )
        now = self._node.containers.known(pause.id)
        if pods.state(now.phase) is PodState.READY:
            return now
        if failure is not None and (now.exit is None or now.exit.by == START_FAILED):
            raise failure
        raise RuntimeFailed(
            f"the pause container of the pod {now.spec.name} ended before the pod was ready; "
            f"`exitctl exits --id {now.id}` shows how; run the pod again"
        ) from failure

    async def stop_pod(self, id: str, timeout_seconds: int | None, by: By) -> PodView:
        """Stop the members, sidecars after those that they serve, and then the pause container. `timeout_seconds`: as
        in `Operations.stop`. Raises what `Containers.find` raises; BadRequest for a container that is no pod."""
        pause = await self._node.containers.find_pod(id)
        if pause.spec.pod is not None and pause.spec.pod.sidecars:
            await self._stop_in_order(pause, timeout_seconds, by)
        stop = self._operations.stop
        await each_member(self._node.containers, pause.id, lambda member: stop(member.id, timeout_seconds, by))
        stopped = await stop(pause.id, timeout_seconds, by)
        return self._views.of_pod(stopped)

    async def _stop_in_order(self, pause: Container, timeout_seconds: int | None, by: By) -> None:
        """Sidecars after those that they serve, in the grace that is left. What is begun by another client meanwhile is
        stopped after them. If exitd dies in between, it is the pod's duties that end them, in the same order."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        others, *serving = pods.stop_order(pause, self._node.containers.members(pause.id))
        if others:
            ids = {member.id for member in others}
            containers = self._node.containers

            async def stop(member: Container) -> None:
                if member.id in ids:
                    await self._operations.stop(member.id, timeout_seconds, by)

            await each_member(containers, pause.id, stop)
        for (sidecar,) in serving:
            grace = sidecar.spec.stop_timeout_seconds if timeout_seconds is None else timeout_seconds
            left = grace - (loop.time() - began)
            seconds = min(grace, math.ceil(max(left, LEAST_GRACE_SECONDS)))
            with contextlib.suppress(NoSuchContainer):
                await self._operations.stop(sidecar.id, seconds, by)

    async def remove_pod(self, id: str, force: bool, by: By) -> None:
        """Remove the pod with its members. Raises what `Containers.find` raises; BadRequest for a container that is no
        pod; WrongState for a Ready pod without `force`."""
        await self._operations.remove((await self._node.containers.find_pod(id)).id, force, by)

    def pods(self, filters_: tuple[str, ...]) -> tuple[list[PodView], int]:
        """Return the pods that match all filters (`KEY=VALUE`), and the number of the next event. Raises BadRequest."""
        wanted = filters.parse(filters_, filters.POD_KEYS)
        views = [self._views.of_pod(c) for c in self._node.containers.values() if c.spec.pod]
        shown = [view for view in views if wanted.matches_pod(view.pause.container, view.pod, view.state)]
        return shown, self._node.events.last_seq + 1

    async def inspect_pod(self, id: str) -> PodView:
        """Return the pod with its members. Raises what `Containers.find` raises; BadRequest for a container that is no
        pod."""
        return self._views.of_pod(await self._node.containers.find_pod(id))

    async def wait_members(self, id: str) -> tuple[Exit, ...]:
        """Return the exits of all members once each has ended for good, also of those that join meanwhile; none for
        what is no pod, or is gone. Raises AmbiguousId, Recovering."""
        with contextlib.suppress(NoSuchContainer):
            pause = await self._node.containers.find(id)
            if pause.spec.pod:
                return await self._members_ended(pause.id)
        return ()

    async def _members_ended(self, pod_id: str) -> tuple[Exit, ...]:
        """Members that come while others are waited for are waited for too."""
        seen: dict[str, Exit | None] = {}
        while new := [member for member in self._node.containers.members(pod_id) if member.id not in seen]:
            for member in new:
                now = await self._node.containers.until(member.id, _is_over_for_good, None, "its end")
                seen[member.id] = now.exit if now is not None else await self._ledger.exit_of(member.id, 0)
        return tuple(exit_ for exit_ in seen.values() if exit_ is not None)


def _is_over_for_good(container: Container | None) -> bool:
    return container is None or container.phase in (Phase.EXITED, Phase.REMOVING)

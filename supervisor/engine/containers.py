"""The containers there are: found by id, by name, by the beginning of an id; waited for until they are something."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from supervisor.model.errors import AmbiguousId, BadRequest, NameTaken, NoSuchContainer, Recovering, TimedOut
from supervisor.model.values import LIVE, Container, Exit, Phase, RunKey, Spec

# -- waiting


Test = Callable[[Container | None], bool]  # None: it is gone


class Changes:
    """Wakes those who wait for a container to change. With ten thousand waiters on ten thousand containers, an event of
    one container costs one look."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[tuple[Test, asyncio.Future[Container | None]]]] = {}

    async def until(self, container_id: str, now: Container | None, test: Test) -> Container | None:
        """Return the container (None: gone) as it is when `test` first holds; at once if it holds for `now`."""
        if test(now):
            return now
        future: asyncio.Future[Container | None] = asyncio.get_running_loop().create_future()
        waiter = (test, future)
        waiters = self._waiters.setdefault(container_id, set())
        waiters.add(waiter)
        try:
            return await future
        finally:
            waiters.discard(waiter)
            if not waiters and self._waiters.get(container_id) is waiters:
                del self._waiters[container_id]

    def notify(self, container_id: str, container: Container | None) -> None:
        """Wake everybody whose test holds for the container as it is now; None: it is gone."""
        for test, future in list(self._waiters.get(container_id, ())):
            if not future.done() and test(container):
                future.set_result(container)

    def __len__(self) -> int:
        return sum(len(waiters) for waiters in self._waiters.values())


# -- the containers


Key = TypeVar("Key")
RECOVERY_SECONDS = 60.0  # how long a call waits for a container that is being looked up


class Containers(dict[str, Container]):
    """By id, and found by name and by pod without a look at all of them. Changed by item, `del` and `pop` alone. The
    names of containerd's tasks are a space of their own: its namespaces are not exitd's, but both have a `default`.

    Belongs to one event loop; no locks. `recovering` are being looked up after a daemon start; `unwatched` are runs of
    which something is there, and no process is known whose end would be theirs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.recovering: dict[str, asyncio.Event] = {}
        self.unwatched: set[RunKey] = set()
        self.changes = Changes()
        self._by_name: dict[tuple[str, str, bool], dict[str, None]] = {}
        self._members: dict[str, dict[str, None]] = {}

    def named(self, namespace: str, name: str, *, task: bool = False) -> Container | None:
        """Return the container that has had the name longest. An empty name is no container's."""
        ids = self._by_name.get((namespace, name, task), ()) if name else ()
        return next((self[id] for id in ids if id in self), None)  # a reserved name outlives its container

    @contextmanager
    def reserved(self, id: str, name: str) -> Iterator[None]:
        """While the block runs, this container has the name too: nothing else can be made or renamed to it. Raises
        NameTaken."""
        spec = self[id].spec
        holder = self.named(spec.namespace, name, task=spec.task is not None)
        if holder is not None and holder.id != id:
            raise NameTaken(f"the name {name} is taken by {holder.id[:12]}; remove it or choose another")
        key = (spec.namespace, name, spec.task is not None)
        self._by_name.setdefault(key, {})[id] = None
        try:
            yield
        finally:
            now = self.get(id)
            if now is None or _name(now.spec) != key:
                _drop(self._by_name, key, id)

    def members(self, pod: str) -> list[Container]:
        """Return the members of the pod with this id, by creation."""
        return sorted((self[id] for id in self._members.get(pod, ())), key=lambda c: c.created_ns)

    def known(self, container_id: str) -> Container:
        """Return the container with this full id. Raises NoSuchContainer."""
        container = self.get(container_id)
        if container is None:
            raise NoSuchContainer(f"no container {container_id}", id=container_id)
        return container

    def resolve(self, reference: str) -> Container:
        """Return the container with this full id, name, or beginning of an id that only one has. Raises
        NoSuchContainer, AmbiguousId."""
        exact = self.get(reference) or self._one_named(reference)
        if exact is not None:
            return exact
        found = [c for c in self.values() if reference and c.id.startswith(reference)]
        if len(found) > 1:
            raise AmbiguousId(f"{reference} is the beginning of {len(found)} ids; give more of it", id=reference)
        if not found:
            raise NoSuchContainer(f"no container {reference}; `exitctl ps -a` lists all", id=reference)
        return found[0]

    def _one_named(self, name: str) -> Container | None:
        own, task = (self.named("default", name, task=which) for which in (False, True))
        if own is not None and task is not None:
            which = f"{name} is a container of exitd's, {own.id[:12]}, and a task of containerd's, {task.id[:12]}"
            raise AmbiguousId(f"{which}; give the id of the one that is meant", id=name)
        return own or task

    async def find(self, reference: str) -> Container:
        """As `resolve`, once the container has been looked up after a daemon start. Raises Recovering when that takes
        too long."""
        container = self.resolve(reference)
        looked_up = self.recovering.get(container.id)
        if looked_up is not None:
            try:
                async with asyncio.timeout(RECOVERY_SECONDS):
                    await looked_up.wait()
            except TimeoutError as error:
                raise Recovering(f"{reference} is still being looked up; try again", id=container.id) from error
            container = self.resolve(container.id)
        return container

    async def find_pod(self, reference: str) -> Container:
        """Return the pod's pause container. Raises BadRequest for a container that is none."""
        pause = await self.find(reference)
        if pause.spec.pod is None:
            raise BadRequest(f"{reference} is a container and no pod; `exitctl pods` lists the pods", id=pause.id)
        return pause

    async def until(self, container_id: str, test: Test, seconds: float | None, what: str) -> Container | None:
        """Return the container (None: gone) once `test` holds. Raises TimedOut, which names what did not come."""
        if seconds is None or test(self.get(container_id)):
            return await self.changes.until(container_id, self.get(container_id), test)
        try:
            async with asyncio.timeout(seconds):
                return await self.changes.until(container_id, self.get(container_id), test)
        except TimeoutError as error:
            raise TimedOut(f"{container_id[:12]}: {what} took longer than {seconds:.0f} s", id=container_id) from error

    def __setitem__(self, id: str, container: Container) -> None:
        old, spec = self.get(id), container.spec
        if old is not None and old.spec is not spec:
            self._forget(id, old.spec)
        if old is None or old.spec is not spec:
            self._by_name.setdefault(_name(spec), {})[id] = None
            if spec.sandbox:
                self._members.setdefault(spec.sandbox, {})[id] = None
        super().__setitem__(id, container)

    def __delitem__(self, id: str) -> None:
        self._forget(id, self[id].spec)
        super().__delitem__(id)

    def pop(self, id: str, default: Container | None = None) -> Container | None:  # type: ignore[override]  # no others
        found = self.get(id, default)
        if id in self:
            del self[id]
        return found

    def _forget(self, id: str, spec: Spec) -> None:
        _drop(self._by_name, _name(spec), id)
        _drop(self._members, spec.sandbox, id)


def _name(spec: Spec) -> tuple[str, str, bool]:
    return spec.namespace, spec.name, spec.task is not None


def _drop(index: dict[Key, dict[str, None]], key: Key, id: str) -> None:
    ids = index.get(key, {})
    ids.pop(id, None)
    if not ids:
        index.pop(key, None)


def is_made(container: Container | None) -> bool:
    """Return whether its create, if one was under way, has come to something."""
    return container is None or container.phase is not Phase.CREATING


def is_ended(container: Container | None) -> bool:
    """Return whether nothing of its run lives or is being made. A container that is gone has ended."""
    return container is None or (container.phase not in LIVE and container.phase is not Phase.CREATING)


def is_over(run: int) -> Test:
    """Return the test whether the exit of this run, or of a later one, is stored; or it has failed to begin, and none
    follows by itself."""
    return lambda c: (
        c is None
        or (c.exit is not None and c.exit.key.run >= run)
        or (c.run >= run and c.phase in (Phase.EXITED, Phase.REMOVING))
    )


def exit_of(container: Container | None) -> Exit | None:
    """Return the stored exit of the newest run that has one; None if none has, or the container is gone."""
    return container.exit if container is not None else None

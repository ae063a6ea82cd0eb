"""The parts of the daemon that have a share in the life of containers beside the node, each at the moments it names."""

from supervisor.model.values import Container, Exit, Report, RunKey


class Participant:
    """Does nothing at any moment; a part overrides the moments it has a share in. What fails is called again until it
    works, so each is repeatable."""

    async def before_make(self, container_id: str) -> None:
        """A run is about to be made. An ExitdError refuses it."""

    async def before_find(self, container_id: str) -> None:
        """A container that an earlier daemon left is about to be looked up."""

    async def after_find(self, container_id: str) -> None:
        """It has been looked up, and callers wait yet. Bounded, and raises nothing."""

    def changed(self, container: Container) -> None:
        """A step was stored, and is shown; or a container has been looked up."""

    def turning(self, container_id: str) -> None:
        """A living container is about to be started, paused or resumed. An ExitdError refuses it."""

    def turned(self, container_id: str) -> None:
        """That is over, and what came of it is shown."""

    async def due(self, container_id: str) -> None:
        """The container's restart policy has its next run begin now."""

    def exec_ended(self, key: RunKey, report: Report) -> None:
        """The end of an exec is known, and not stored."""

    def delays_end(self, container_id: str) -> bool:
        """Whether `before_end` has something to do."""
        return False

    async def before_end(self, container_id: str) -> None:
        """The end of a run is known, and about to be stored. Bounded. Not called where no part delays an end."""

    def being_stored(self, exit: Exit) -> None:
        """This end is on its way to the disk, and no client may learn of it yet: what does not depend on that can be
        prepared."""

    async def before_clean_up(self, container_id: str) -> None:
        """The end is stored, and what is left of the run is about to go."""

    async def after_clean_up(self, container_id: str) -> None:
        """Nothing of the run lives any more. Bounded."""

    async def removing(self, container_id: str) -> None:
        """The container is being removed; its files are there still."""

    async def discarded(self, container_id: str) -> None:
        """Its files are gone, or it never came to have any."""


class Participants(Participant):
    """All participants, in one order: what begins is begun in that order, and what is taken down in the reverse one."""

    def __init__(self, *parts: Participant) -> None:
        self._parts = parts
        # At these moments a caller waits: a part that does nothing at one is not called.
        self._changed = _having("changed", parts)
        self._turning = _having("turning", parts)
        self._turned = _having("turned", parts)
        self._finding = _having("before_find", parts)
        self._found = _having("after_find", parts)
        self._delaying = _having("delays_end", parts)
        self._before_make = _having("before_make", parts)
        self._exec_ended = _having("exec_ended", parts)
        self._being_stored = _having("being_stored", parts)
        self._before_clean_up = _having("before_clean_up", parts)
        self._after_clean_up = _having("after_clean_up", parts)
        self._removing = _having("removing", parts)[::-1]
        self._discarded = _having("discarded", parts)[::-1]

    async def before_make(self, container_id: str) -> None:
        for part in self._before_make:
            await part.before_make(container_id)

    async def before_find(self, container_id: str) -> None:
        for part in self._finding:
            await part.before_find(container_id)

    async def after_find(self, container_id: str) -> None:
        for part in self._found:
            await part.after_find(container_id)

    def changed(self, container: Container) -> None:
        for part in self._changed:
            part.changed(container)

    def turning(self, container_id: str) -> None:
        for part in self._turning:
            part.turning(container_id)

    def turned(self, container_id: str) -> None:
        for part in self._turned:
            part.turned(container_id)

    async def due(self, container_id: str) -> None:
        for part in self._parts:
            await part.due(container_id)

    def exec_ended(self, key: RunKey, report: Report) -> None:
        for part in self._exec_ended:
            part.exec_ended(key, report)

    def delays_end(self, container_id: str) -> bool:
        return any([part.delays_end(container_id) for part in self._delaying])

    async def before_end(self, container_id: str) -> None:
        for part in self._parts:
            await part.before_end(container_id)

    def being_stored(self, exit: Exit) -> None:
        for part in self._being_stored:
            part.being_stored(exit)

    async def before_clean_up(self, container_id: str) -> None:
        for part in self._before_clean_up:
            await part.before_clean_up(container_id)

    async def after_clean_up(self, container_id: str) -> None:
        for part in self._after_clean_up:
            await part.after_clean_up(container_id)

    async def removing(self, container_id: str) -> None:
        for part in self._removing:
            await part.removing(container_id)

    async def discarded(self, container_id: str) -> None:
        for part in self._discarded:
            await part.discarded(container_id)


def _having(moment: str, parts: tuple[Participant, ...]) -> list[Participant]:
    """Return the parts that have a share in this moment, by the name of its method."""
    nothing = getattr(Participant, moment)
    return [part for part in parts if getattr(getattr(part, moment), "__func__", None) is not nothing]

"""The ids of containers with user namespaces of their own: one range for each, from its admission until nothing of it
is left.

A range is in the container's spec, and so on the disk before anything has its ids. Where no row can be read any more,
the container's config.json names its range: what runs on keeps its ids for itself.
"""

from collections.abc import Callable, Collection, Iterator

from shim.frozen import replace
from supervisor.config.settings import Config
from supervisor.engine.containers import Containers
from supervisor.engine.participants import Participant
from supervisor.model import idranges
from supervisor.model.errors import BadRequest, ShimFailed, WrongState
from supervisor.model.idranges import IdRange
from supervisor.model.values import Spec
from supervisor.runtime.oci import bundle
from supervisor.system.aside import Aside


class IdRanges(Participant):
    """Gives ranges. One per daemon; belongs to its event loop."""

    def __init__(self, containers: Containers, config: Callable[[], Config], root: str) -> None:
        self._containers, self._config, self._root = containers, config, root
        self._looks = Aside(1)
        self._promised: dict[str, IdRange] = {}  # of containers that are being admitted

    async def claim(self, spec: Spec, container_id: str) -> Spec:
        """Return the spec with its range, if it asks for one: it is the container's from here on, until that is
        discarded. Raises BadRequest, WrongState, ShimFailed, TimedOut, Busy."""
        if spec.userns != idranges.AUTO:
            return spec
        refuse_unfit(spec)
        wanted = self._config().userns
        if not wanted.base:
            raise WrongState(
                f"userns auto: no ids are configured for it; set userns.base, the first of {wanted.count} ids that "
                "neither /etc/passwd nor /etc/subuid has, in exitd's configuration"
            )
        named = {each.id for each in self._containers.values() if not each.damaged}
        unnamed = await self._looks.run("the look at the ids of containers", lambda: self._unnamed(named))
        # From here on nothing waits: two requests get two ranges.
        chosen = idranges.choose(IdRange(wanted.base, wanted.count), (*unnamed, *self._claimed()))
        if chosen is None:
            raise WrongState(
                f"userns auto: all {wanted.count // idranges.COUNT} ranges of userns.base and userns.count are taken; "
                "remove containers, or configure more ids"
            )
        self._promised[container_id] = chosen
        return replace(spec, ids=chosen)

    async def discarded(self, container_id: str) -> None:
        self._promised.pop(container_id, None)

    def _claimed(self) -> Iterator[IdRange]:
        for id in [id for id in self._promised if id in self._containers]:
            del self._promised[id]
        yield from self._promised.values()
        yield from (each.spec.ids for each in self._containers.values() if each.spec.ids is not None)

    def _unnamed(self, named: Collection[str]) -> list[IdRange]:
        """Return the ranges of other containers that have files. Raises ShimFailed."""
        try:
            return [
                found
                for id in bundle.all_ids(self._root)
                if id not in named and (found := bundle.ids_of(id, self._root)) is not None
            ]
        except OSError as error:
            raise ShimFailed(f"userns auto: {error.filename}: {error.strerror}") from error


def refuse_unfit(spec: Spec) -> None:
    """Raise BadRequest for what has no user namespace of its own, as its place, its runtime and its image say."""
    if spec.sandbox or spec.pod is not None:
        raise BadRequest(
            "userns auto: the containers of a pod have the machine's users; leave one of them out", field="userns"
        )
    if spec.runtime_type:
        raise BadRequest(
            f"userns auto: {spec.runtime} is a shim of its own, which is given no user namespaces; choose runc or crun",
            field="userns",
        )

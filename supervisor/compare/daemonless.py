"""What ways have in common that have no daemon: a conmon for each container, whose parent it is."""

from collections.abc import Mapping, Sequence

from supervisor.compare.machine import parent_of
from supervisor.compare.way import NO_ANSWER_SECONDS, Wait, WayAnswer, WayContainer, WayPod


class Daemonless:
    """The part of a Driver that ways without a daemon share. `no_answer`: its words for an end that is not reported."""

    no_answer: str

    def begin_wait(self, container: WayContainer) -> Wait:
        raise NotImplementedError

    def answer(self, container: WayContainer, seconds: float = NO_ANSWER_SECONDS) -> WayAnswer:
        try:
            return self.begin_wait(container)(seconds)
        except TimeoutError:
            return WayAnswer(self.no_answer, None)

    def answers_for(self, containers: Sequence[WayContainer]) -> bool:
        return True  # no daemon is asked

    def beside(self, pod: WayPod) -> list[int]:
        return sorted({parent_of(container.pid) for container in pod.containers})

    def daemons(self) -> list[int]:
        return []

    def victims(self, pod: WayPod) -> Mapping[str, int]:
        return {"conmon": parent_of(pod.members[0].pid)}

    def kill_daemon(self) -> bool:
        return False

    def start_daemon(self) -> None:
        pass

"""The inbox of one stream: its connection is read from until enough waits in it, and again when that was taken."""

import asyncio

import pytest

from supervisor.ttrpc.wire import Inbox, Wire
from tests.supervisor.ttrpc.rig import word


class Reading(Wire):
    """Without a connection: who holds it is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[object] = set()

    def hold_reading(self, holder: object) -> None:
        self.held.add(holder)

    def go_on_reading(self, holder: object) -> None:
        self.held.discard(holder)


@pytest.mark.parametrize(
    ("messages", "size"),
    [(64, 1), (2, 1 << 19), (1, 1 << 20)],
    ids=["many", "large ones", "one that is too large"],
)
def test_the_last_message_that_has_room_stops_the_reading_and_taking_one_goes_on(messages: int, size: int) -> None:
    async def main() -> None:
        wire = Reading()
        inbox = Inbox(wire)
        for _ in range(messages - 1):
            inbox.put(word("x"), size)
            assert not wire.held
        inbox.put(word("x"), size)
        assert wire.held == {inbox}
        assert await anext(inbox) == word("x")
        assert not wire.held

    asyncio.run(main())


def test_a_megabyte_less_one_byte_and_sixty_three_messages_are_not_enough_to_stop_it() -> None:
    async def main() -> None:
        wire = Reading()
        large, many = Inbox(wire), Inbox(wire)
        large.put(word("x"), (1 << 20) - 1)
        for _ in range(63):
            many.put(word("x"), 1)
        assert not wire.held

    asyncio.run(main())


def test_who_takes_no_more_holds_nobody_up() -> None:
    async def main() -> None:
        wire = Reading()
        inbox = Inbox(wire)
        inbox.put(word("x"), 1 << 20)
        inbox.drop()
        assert not wire.held

    asyncio.run(main())

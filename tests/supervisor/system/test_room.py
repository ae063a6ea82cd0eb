"""Room for descriptors: waited for within a limit before anything begins, without one afterwards."""

import errno
import os
import resource

import pytest

from supervisor.model.errors import Busy
from supervisor.system import room
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import in_loop


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "AGAIN_SECONDS", 0.001)


def refused(number: int = errno.EMFILE) -> OSError:
    return OSError(number, os.strerror(number))


class Attempts:
    """Fails so many times, with this error."""

    def __init__(self, failures: int, number: int = errno.EMFILE) -> None:
        self.failures, self.number = failures, number

    def __call__(self) -> str:
        self.failures -= 1
        if self.failures >= 0:
            raise refused(self.number)
        return "done"


@in_loop
async def test_what_finds_no_room_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await room.patiently(Attempts(3), "a thing") == "done"


@in_loop
async def test_what_finds_no_room_for_long_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PATIENCE_SECONDS", 0.01)
    with pytest.raises(Busy, match="out of descriptors, no room for a thing"):
        await room.patiently(Attempts(10**9), "a thing")


@in_loop
async def test_other_errors_are_the_callers_at_once() -> None:
    with pytest.raises(PermissionError):
        await room.patiently(Attempts(1, errno.EACCES), "a thing")


@in_loop
async def test_what_has_begun_is_never_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PATIENCE_SECONDS", 0.0)
    attempts = Attempts(20)

    async def attempt() -> str:
        return attempts()

    assert await room.retry(attempt) == "done"


@pytest.mark.parametrize("kernel_says", [True, False])
@in_loop
async def test_room_is_there_when_so_many_can_be_opened_at_once(
    monkeypatch: pytest.MonkeyPatch, kernel_says: bool
) -> None:
    monkeypatch.setattr(room, "PATIENCE_SECONDS", 0.01)
    if not kernel_says:
        monkeypatch.setattr(room, "_open_now", lambda: 0)
    before, (soft, hard) = held_now(), resource.getrlimit(resource.RLIMIT_NOFILE)
    await room.wait_for(5, "five")
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + 20, hard))
    try:
        with pytest.raises(Busy):
            await room.wait_for(1000, "a thousand")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not opened_since(before)


def test_only_what_is_used_up_says_nothing_else() -> None:
    assert room.is_used_up(refused(errno.ENFILE))
    assert not room.is_used_up(refused(errno.ENOENT))
    assert not room.is_used_up(None)

"""The thread that sends what is typed: what was given is sent before whoever waited for that goes on."""

import threading
from types import SimpleNamespace
from typing import cast

from supervisor.api.attachment import Attachment
from supervisor.cli.sending import Sender

LIMIT_SECONDS = 60.0


class SlowAttachment:
    """Takes its input once it may."""

    def __init__(self, order: list[bytes]) -> None:
        self.started = SimpleNamespace(counted=False, stdin_bytes=0)
        self.begun, self.may = threading.Event(), threading.Event()
        self._order = order

    def write(self, data: bytes) -> bool:
        self.begun.set()
        self.may.wait(LIMIT_SECONDS)
        self._order.append(data)
        return True


def test_what_is_being_sent_is_waited_for_as_what_is_queued() -> None:
    order: list[bytes] = []
    attachment, sender = SlowAttachment(order), Sender(1000, closes=False)
    sender.start()
    assert sender.attach(cast(Attachment, attachment))
    sender.give(b"typed")
    assert attachment.begun.wait(LIMIT_SECONDS)  # the queue is empty by now

    def leave() -> None:
        sender.flush(LIMIT_SECONDS)
        order.append(b"left")

    leaving = threading.Thread(target=leave)
    leaving.start()
    leaving.join(0.1)  # it would be enough for one that does not wait
    attachment.may.set()
    leaving.join(LIMIT_SECONDS)
    sender.stop(LIMIT_SECONDS)
    assert order == [b"typed", b"left"]

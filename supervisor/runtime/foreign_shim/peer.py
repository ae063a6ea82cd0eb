"""The connection to one container's shim: opened, reopened when it broke, and checked now and then.

A lost connection is not a lost shim: a shim is dead when no process listens on its socket any more. A stopped shim
accepts connections but answers nothing: it is silent, its waits stay open, and no end is invented.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable

import structlog

from supervisor.model.errors import ExitdError, ShimLost, TimedOut
from supervisor.runtime.foreign_shim.binary import Address
from supervisor.runtime.foreign_shim.connection import ShimConnection
from supervisor.runtime.foreign_shim.place import Contact
from supervisor.system.aside import Aside

PLAIN = frozenset({"containerd-shim-runc-v2", "containerd-shim-exitd-v2"})  # see `verdict.Seen`
CHECK_SECONDS = 5.0  # between two checks, and the limit for an answer, at most
ANSWER_INTERVALS = 10  # if checks are more frequent, an answer may take so many times the interval
OPEN_SECONDS = 5.0
REST_SECONDS = 0.5  # between two connections: a shim that closes each at once must not keep the daemon busy

log = structlog.get_logger(__name__)


class Peer:
    """Belongs to the event loop. `lost` is set once, for good; `silent` comes and goes, reported by `on_silence`."""

    def __init__(
        self,
        id: str,
        contact: Contact,
        on_silence: Callable[[bool], None],
        check_seconds: Callable[[], float],
        looks: Aside,
    ) -> None:
        """`check_seconds` returns the present interval between two checks, if that is less than CHECK_SECONDS.
        `looks`: threads that look up its socket."""
        self.id = id
        self._check_seconds = check_seconds
        self.contact = contact
        self.lost = asyncio.Event()
        self.silent = False
        self.is_plain = os.path.basename(contact.program) in PLAIN
        self._on_silence = on_silence
        self._looks = looks
        self._link: ShimConnection | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def address(self) -> Address:
        return Address(self.contact.address, self.contact.version, self.contact.protocol)

    async def wait_closed(self) -> None:
        """Wait until the present connection has ended."""
        if self._link is not None:
            await self._link.closed.wait()

    async def link(self) -> ShimConnection:
        """Return a connection that works, as far as is known. Raises ShimLost when the shim is gone, TimedOut when it
        accepts none."""
        async with self._opening:
            if self.lost.is_set() or self._closed:
                raise ShimLost(f"the shim of {self.id[:12]} is gone", id=self.id)
            if self._link is None or self._link.closed.is_set():
                try:
                    self._link = await ShimConnection.open(self.address, self._looks, OPEN_SECONDS)
                except ShimLost:
                    self.lost.set()
                    raise
            return self._link

    async def keep(self) -> None:
        """Check the shim until it is lost or this is cancelled."""
        while not self.lost.is_set():
            with contextlib.suppress(ShimLost):
                await self._ask()
            await self._rest()

    async def _ask(self) -> None:
        try:
            link = await self.link()
            await link.connect(self.id, seconds=min(CHECK_SECONDS, ANSWER_INTERVALS * self._check_seconds()))
        except TimedOut:
            self._heard(False)
            return
        except OSError as error:  # out of descriptors: that says nothing about the shim
            log.debug("the shim cannot be checked now", container=self.id, why=str(error))
            return
        except ShimLost:
            raise
        except ExitdError as error:  # an error is an answer, too
            log.debug("the shim refused to connect", container=self.id, why=str(error))
        self._heard(True)

    def missed(self) -> None:
        """Note that a call, which the shim should have answered, has timed out."""
        self._heard(False)

    def _heard(self, answers: bool) -> None:
        if answers is self.silent:
            self.silent = not answers
            log.warning("shim answers again" if answers else "shim does not answer", container=self.id)
            self._on_silence(self.silent)

    async def _rest(self) -> None:
        """A broken connection is checked soon."""
        if self._link is None or self._link.closed.is_set():
            await asyncio.sleep(REST_SECONDS)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(CHECK_SECONDS, self._check_seconds())):
                await self._link.closed.wait()

    def close(self) -> None:
        """Repeatable. The shim lives on."""
        self._closed = True
        if self._link is not None:
            self._link.close()

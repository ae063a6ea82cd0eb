"""Shims that nobody has the address of: `start` was killed, or not understood, or its exitd died before it could note
what it had printed. They leave it in their bundle."""

import structlog

from supervisor.errors import ExitdError, ShimFailed
from supervisor.shimclient.binary import Address, read_start_output
from supervisor.shimclient.link import Link, remove_dead_socket

NAME = "address"
MOST_BYTES = 4096

log = structlog.get_logger(__name__)


def address_in(bundle: str) -> Address | None:
    """None: no shim has got as far as writing it, or it cannot be read."""
    try:
        with open(f"{bundle}/{NAME}", "rb") as file:
            return read_start_output(file.read(MOST_BYTES))
    except (OSError, ShimFailed):
        return None


async def end_stray(bundle: str, id: str) -> bool:
    """A shim without tasks ends; one that has others, of a pod, stays. True: somebody was there and was asked. Call
    `delete` afterwards."""
    address = address_in(bundle)
    if address is None:
        return False
    try:
        link = await Link.open(address)
    except ExitdError as error:
        log.debug("nobody is there to be ended", id=id, address=address.address, why=str(error))
        if address.address.startswith("unix://"):
            remove_dead_socket(address)
        return False
    try:
        await link.shutdown(id)
    except ExitdError as error:
        log.warning("a shim cannot be ended", id=id, address=address.address, why=str(error))
    finally:
        link.close()
    return True

"""How a process ended, in its three kinds, and the one number for a protocol that demands one."""

from shim.frozen import frozen

UNKNOWN_NUMBER = 255  # the number for foreign protocols that demand one for an unknown end


@frozen
class Exited:
    """The process ended by itself with `code`, 0 to 255."""

    code: int


@frozen
class Signaled:
    """A signal ended the process; `core` says whether it dumped core."""

    signal: int
    core: bool = False


@frozen
class Unknown:
    """No witness saw how it ended. `number` is a value that was seen but proves nothing."""

    cause: str
    number: int | None = None


ExitStatus = Exited | Signaled | Unknown


def fold(status: ExitStatus) -> int:
    """Return the one number that foreign protocols demand: the code, 128 + signal, or 255 for unknown."""
    match status:
        case Exited(code):
            return code
        case Signaled(signal, _):
            return 128 + signal
        case Unknown():
            return UNKNOWN_NUMBER

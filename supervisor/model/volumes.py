"""Facts about named volumes."""

from shim.frozen import frozen


@frozen
class Volume:
    """A directory that outlives the containers that mount it. `path`: on the machine; `made_ns`: since 1970."""

    name: str
    path: str
    made_ns: int
    anonymous: bool = False  # made for one container, without a name of the caller's

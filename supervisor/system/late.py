"""Modules of exitd's own that no start needs. They are loaded when the containers have been looked up, or before that
by the first caller: when an upgrade replaces the files below a daemon, it has all that it will need."""

from shim.later import later

_OF_IMAGES = (
    *("changes", "extract", "files", "instructions", "layout", "merge", "pack", "saved", "streams", "tar", "tarwriter"),
    *("tools", "unpack"),
)
_OF_FOREIGN_SHIMS = ("binary", "family")
MODULES = (
    *(f"supervisor.images.{name}" for name in _OF_IMAGES),
    *(f"supervisor.runtime.foreign_shim.{name}" for name in _OF_FOREIGN_SHIMS),
)


def put_off() -> None:
    """Call it before anything imports one of them."""
    for name in MODULES:
        later(name)

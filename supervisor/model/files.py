"""Facts about files of containers."""

from shim.frozen import frozen


@frozen
class PathStat:
    """One file as stat(2) shows it. `mode` has its kind, too; `target` is that of a symbolic link."""

    name: str
    mode: int
    size_bytes: int
    modified_ns: int
    target: str = ""


@frozen
class LayerChange:
    """`kind`: added, changed or deleted. `path` is absolute, as the container sees it."""

    kind: str
    path: str

"""The tree as the design wants it: rooms that import one way, and each door to the outside in one place."""

import ast
import functools
import graphlib
import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAP = ROOT / "docs" / "architecture.md"

# A room is a folder of supervisor/, or one of the modules that put the rooms together. What it imports of the others,
# which are above it here; docs/architecture.md has this table, with a sentence for each.
ROOMS: dict[str, tuple[str, ...]] = {
    "model": (),
    "system": ("model",),
    "config": ("model", "system"),
    "store": ("model", "system"),
    "ttrpc": ("model", "system"),
    "monitor": ("model", "system", "config"),
    "streams": ("model", "system", "monitor"),
    "runtime": ("model", "system", "config", "ttrpc", "monitor", "streams"),
    "images": ("model", "system", "runtime"),
    "network": ("model", "system", "runtime"),
    "engine": ("model", "system", "config", "store", "monitor", "streams", "runtime", "images", "network"),
    "containerd": ("model", "system", "store", "ttrpc", "monitor", "runtime", "engine"),
    "external": ("model", "system", "store", "monitor", "runtime", "engine"),
    "api": ("model", "system", "store", "ttrpc", "streams", "runtime", "images", "external"),
    "metrics": ("model", "system", "config", "store", "monitor", "engine", "external"),
    "daemon": (
        "model",
        "system",
        "config",
        "store",
        "monitor",
        "runtime",
        "images",
        "engine",
        "containerd",
        "external",
        "api",
        "metrics",
    ),
    "compare": ("model", "monitor", "runtime", "api"),
    "__main__": ("model", "system", "config", "engine", "daemon"),
    "cli": ("model", "config", "ttrpc", "monitor", "runtime", "images", "network", "api", "compare"),
}

# Who alone may import what.
DOORS = {
    # The comparison asks containerd as its clients do; exitd itself only watches.
    "grpc": ("supervisor.api", "supervisor.compare.containerdapi"),
    "grpc_health": ("supervisor.api",),
    "grpc_reflection": ("supervisor.api",),
    "protos": (
        *("supervisor.api", "supervisor.cli", "supervisor.compare"),
        *("supervisor.containerd", "supervisor.runtime.foreign_shim", "supervisor.ttrpc"),
    ),
    "click": ("supervisor.cli", "supervisor.__main__"),
    "matplotlib": ("supervisor.compare.html.plots",),
    "pyinotify": ("supervisor.system.inotify",),
    "sqlite3": ("supervisor.store",),
    "shim._native": ("shim.native",),
}
NOT_IN_SHIM = ("supervisor", "protos", "grpc", "asyncio", "structlog", "click")
ROW = re.compile(r"^\| `(\w+)(?:/|\.py)` \| [^|]+ \| ([^|]*) \|$", re.MULTILINE)


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def modules_of(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """Every module of the daemon and the shim, by its dotted name."""
    found = {}
    for path in (p for top in ("shim", "supervisor") for p in (root / top).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def imports_of(path: pathlib.Path) -> frozenset[str]:
    """All that a file imports, wherever in it; `from a import b` may mean the module a.b or the name b of a."""
    return frozenset(name for node in ast.walk(ast.parse(path.read_text())) for name in _imported(node))


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            yield from (f"{module}.{alias.name}" for alias in names)
        case ast.ImportFrom(level=level) if level:
            raise AssertionError(f"line {node.lineno}: imports are absolute in this tree")


def targets(root: pathlib.Path) -> dict[str, set[str]]:
    """By module, the modules of the tree that it imports."""
    modules = modules_of(root)
    return {
        module: {found for name in imports_of(path) if (found := _module(name, modules)) and found != module}
        for module, path in modules.items()
    }


def _module(name: str, modules: dict[str, pathlib.Path]) -> str:
    return next((each for each in (name, name.rpartition(".")[0]) if each in modules), "")


def room_of(module: str) -> str:
    """Empty: the package `supervisor` itself, and the shim, which everybody may import."""
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] if top == "supervisor" else ""


def between(root: pathlib.Path) -> dict[str, set[str]]:
    """By room, the other rooms that it imports."""
    found: dict[str, set[str]] = {}
    for module, imported in targets(root).items():
        if room := room_of(module):
            found.setdefault(room, set()).update({room_of(each) for each in imported} - {room, ""})
    return found


def trespassing(root: pathlib.Path) -> list[str]:
    """The imports that belong to another module's door, one sentence each."""
    return [
        f"{module} imports {name}"
        for module, path in modules_of(root).items()
        for name in sorted(imports_of(path))
        if not allowed(module, name)
    ]


def allowed(module: str, name: str) -> bool:
    if within(module, "shim") and any(within(name, other) for other in NOT_IN_SHIM):
        return False
    owners = [owners for door, owners in DOORS.items() if within(name, door)]
    return all(any(within(module, owner) for owner in each) for each in owners)


def test_each_room_imports_what_the_map_says() -> None:
    assert between(ROOT) == {room: set(others) for room, others in ROOMS.items()}


def test_the_rooms_are_in_the_order_of_their_imports() -> None:
    above: set[str] = set()
    for room, others in ROOMS.items():
        assert set(others) <= above, room
        above.add(room)


def test_no_module_imports_itself_in_a_circle() -> None:
    assert list(graphlib.TopologicalSorter(targets(ROOT)).static_order())


def test_the_page_has_the_map() -> None:
    rows = {room: tuple(re.findall(r"`(\w+)`", others)) for room, others in ROW.findall(MAP.read_text())}
    assert rows == ROOMS


def test_each_door_to_the_outside_has_one_place() -> None:
    assert trespassing(ROOT) == []


def planted(root: pathlib.Path, module: str, text: str) -> pathlib.Path:
    path = root.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return root


def test_a_planted_import_of_another_room_is_found(tmp_path: pathlib.Path) -> None:
    planted(tmp_path, "supervisor.engine.node", "import os\n")
    planted(tmp_path, "supervisor.model.values", "def late() -> None:\n    from supervisor.engine import node\n")
    assert between(tmp_path) == {"engine": set(), "model": {"engine"}}


def test_a_planted_circle_is_found(tmp_path: pathlib.Path) -> None:
    planted(tmp_path, "supervisor.model.values", "from supervisor.model.errors import Busy\n")
    planted(tmp_path, "supervisor.model.errors", "from supervisor.model import values\n")
    try:
        list(graphlib.TopologicalSorter(targets(tmp_path)).static_order())
    except graphlib.CycleError as error:
        assert {"supervisor.model.values", "supervisor.model.errors"} <= set(error.args[1])
    else:
        raise AssertionError("not found")


def test_a_planted_import_of_the_daemon_in_the_shim_is_found(tmp_path: pathlib.Path) -> None:
    planted(tmp_path, "supervisor.model.values", "")
    planted(tmp_path, "shim.plan", "from supervisor.model.values import Exited\n")
    assert trespassing(tmp_path) == ["shim.plan imports supervisor.model.values.Exited"]


def test_a_planted_import_of_grpc_outside_the_api_is_found(tmp_path: pathlib.Path) -> None:
    planted(tmp_path, "supervisor.cli.run", "import grpc.aio\n")
    planted(tmp_path, "supervisor.api.client", "import grpc\n")
    assert trespassing(tmp_path) == ["supervisor.cli.run imports grpc.aio"]

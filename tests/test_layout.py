"""The tree as the design wants it: imports go one way, each door to the outside has one place."""

import ast
import pathlib
import subprocess
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent

# A line imports only from lines above it. A package stands for all its modules, which may import each other.
ORDER = (
    "shim",  # facts of the programs beside each container; imports nothing of the daemon
    # facts
    "supervisor",
    "supervisor.external",
    "supervisor.engine",
    "supervisor.runtime",
    "supervisor.streams",
    "supervisor.monitor",
    "supervisor.config",
    "supervisor.store",
    "supervisor.system",
    "supervisor.model",
    "supervisor.model.checks",
    "supervisor.model.logspecs",
    "supervisor.model.security",
    "supervisor.model.taskfacts",
    "supervisor.model.rights",
    "supervisor.model.facts",
    "supervisor.model.errors",
    "supervisor.model.errnos",
    # rules: pure, no clock, no descriptor
    "supervisor.model.signals",
    "supervisor.model.sizes",
    "supervisor.model.bounds",
    "supervisor.model.happenings",
    "supervisor.model.notices",
    "supervisor.model.health",
    "supervisor.model.restart",
    "supervisor.model.lifecycle",
    "supervisor.model.execs",
    "supervisor.model.adoption",
    "supervisor.model.pods",
    "supervisor.model.views",
    "supervisor.model.evidence",
    "supervisor.monitor.epoll.kernellog",
    "supervisor.model.filters",
    "supervisor.streams.logline",
    "supervisor.store.rows",
    "supervisor.store.database.salvage",
    "supervisor.store.database.taskrows",
    "supervisor.model.watched",
    "supervisor.model.whose",
    "supervisor.store.database.watchrows",
    "supervisor.model.foreign",
    "supervisor.runtime.sandbox",
    "supervisor.config.settings.tomllines",
    "supervisor.config.settings",
    "supervisor.monitor.epoll.procevents",
    "supervisor.config.settings.file",
    # kernel, files, sockets
    "supervisor.system.listening",
    "supervisor.system.room",
    "supervisor.system.regular",
    "supervisor.system.threads",
    "supervisor.system.aside",
    "supervisor.ttrpc",
    "supervisor.system.clock",
    "supervisor.system.sdnotify",
    "supervisor.system.sdlisten",
    "supervisor.system.inotify",
    "supervisor.system.pathwatch",
    "supervisor.store.database.schema",
    "supervisor.store.database.groupcommit",
    "supervisor.store.database",
    "supervisor.store.database.events",
    "supervisor.streams.attach.logfiles",
    "supervisor.streams.logs",
    "supervisor.monitor.epoll.procstate",
    "supervisor.monitor.rundir",
    "supervisor.monitor.epoll.ownership",
    "supervisor.monitor.epoll",
    "supervisor.monitor.epoll.kernelword",
    "supervisor.monitor.kmsg",
    "supervisor.monitor.survey",
    "supervisor.monitor.orphans",
    "supervisor.monitor.epoll.proctree",
    "supervisor.monitor.keeper",
    "supervisor.monitor.control",
    "supervisor.monitor.witness",
    "supervisor.streams.tap",
    "supervisor.streams.attach",
    "supervisor.monitor.shims",
    "supervisor.monitor.orphans",
    "supervisor.monitor.probe",
    "supervisor.system.background",
    "supervisor.runtime.oci",
    "supervisor.runtime.foreign_shim",
    "supervisor.images",
    "supervisor.external.observe",
    "supervisor.engine.remains",
    # wiring
    "supervisor.runtime.managers",
    "supervisor.engine.changes",
    "supervisor.engine.storing",
    "supervisor.engine.directory",
    "supervisor.engine.node",
    "supervisor.engine.execlife",
    "supervisor.engine.probing",
    "supervisor.engine.prober",
    "supervisor.config.reload",
    "supervisor.engine.runtimes",
    "supervisor.engine.logplaces",
    "supervisor.engine.imagedesk",
    "supervisor.external.observer",
    "supervisor.external.runcroot",
    "supervisor.external.containerdtasks",
    "supervisor.external.watchdesk",
    "supervisor.engine.admission",
    "supervisor.engine.podkeeper",
    "supervisor.engine.recovery",
    "supervisor.engine.streamdesk",
    "supervisor.engine.foundlings",
    "supervisor.engine.operations",
    "supervisor.engine.podlife",
    "supervisor.engine.execops",
    "supervisor.engine.reconcile",
    "supervisor.api",
    "supervisor.containerd",
    "supervisor.daemon",
    "supervisor.__main__",
    "supervisor.compare",
    "supervisor.cli",
)

# Who alone may import what.
DOORS = {
    # The comparison asks containerd as its clients do; exitd itself only watches.
    "grpc": ("supervisor.api", "supervisor.compare.containerdapi"),
    "grpc_health": ("supervisor.api",),
    "grpc_reflection": ("supervisor.api",),
    "protos": (
        *("supervisor.api", "supervisor.cli", "supervisor.compare"),
        *("supervisor.runtime.foreign_shim", "supervisor.containerd", "supervisor.ttrpc"),
    ),
    "click": ("supervisor.cli", "supervisor.__main__"),
    "pyinotify": ("supervisor.system.inotify",),
    "sqlite3": (
        "supervisor.store.database.schema",
        "supervisor.store.database.groupcommit",
        "supervisor.store.database",
    ),
    "shim._native": ("shim.native",),
}
NOT_IN_SHIM = ("supervisor", "protos", "grpc", "asyncio", "structlog", "click")


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def modules_of(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """Every module of the daemon and the shim, by its dotted name."""
    found = {}
    for path in (p for top in ("shim", "supervisor") for p in (root / top).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: pathlib.Path) -> set[str]:
    """All that a file imports, wherever in it; `from a import b` may mean the module a.b or the name b of a."""
    return {name for node in ast.walk(ast.parse(path.read_text())) for name in _imported(node)}


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            yield from (f"{module}.{alias.name}" for alias in names)
        case ast.ImportFrom(level=level) if level:
            raise AssertionError(f"line {node.lineno}: imports are absolute in this tree")


def line_of(module: str) -> int | None:
    """The line of ORDER that the module belongs to; the package `supervisor` itself does not stand for its modules."""
    lines = [line for line in ORDER if module == line or (line != "supervisor" and within(module, line))]
    return ORDER.index(max(lines, key=len)) if lines else None


def unlisted(root: pathlib.Path) -> list[str]:
    """The modules that have no line in ORDER; each needs one, below all that it imports."""
    return sorted(module for module in modules_of(root) if line_of(module) is None)


def upward(root: pathlib.Path) -> list[str]:
    """The imports that go against ORDER, one sentence each."""
    modules = modules_of(root)
    found = []
    for module, path in modules.items():
        for name in sorted(imports_of(path)):
            target = name if name in modules else name.rpartition(".")[0]
            lower, upper = line_of(module), line_of(target) if target in modules else None
            if lower is not None and upper is not None and upper > lower:
                found.append(f"{module} imports {target}")
    return found


def trespassing(root: pathlib.Path) -> list[str]:
    """The imports that belong to somebody else's door, one sentence each."""
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


def test_every_module_has_a_line_in_the_order() -> None:
    assert unlisted(ROOT) == []


def test_imports_go_one_way() -> None:
    assert upward(ROOT) == []


def test_each_door_to_the_outside_has_one_place() -> None:
    assert trespassing(ROOT) == []


def planted(root: pathlib.Path, module: str, text: str) -> pathlib.Path:
    path = root.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return root


def test_a_planted_upward_import_is_found(tmp_path: pathlib.Path) -> None:
    planted(tmp_path, "supervisor.engine.node", "import os\n")
    planted(
        tmp_path,
        "supervisor.model.facts",
        "def late() -> None:\n    from supervisor.engine import node\n    print(node)\n",
    )
    assert upward(tmp_path) == ["supervisor.facts imports supervisor.engine.node"]


def test_a_planted_import_of_the_daemon_in_the_shim_is_found_twice(tmp_path: pathlib.Path) -> None:
    planted(tmp_path, "supervisor.model.facts", "")
    planted(tmp_path, "shim.plan", "from supervisor.model.facts import Exited\n")
    assert upward(tmp_path) == ["shim.plan imports supervisor.model.facts"]
    assert trespassing(tmp_path) == ["shim.plan imports supervisor.model.facts.Exited"]


def test_a_planted_import_of_grpc_outside_the_api_is_found(tmp_path: pathlib.Path) -> None:
    planted(tmp_path, "supervisor.cli.run", "import grpc.aio\n")
    planted(tmp_path, "supervisor.api.client", "import grpc\n")
    assert trespassing(tmp_path) == ["supervisor.cli.run imports grpc.aio"]


def test_a_planted_module_without_a_line_in_the_order_is_found(tmp_path: pathlib.Path) -> None:
    planted(tmp_path, "supervisor.runtime.oci.spec", "")
    planted(tmp_path, "supervisor.utils", "")
    assert unlisted(tmp_path) == ["supervisor.utils"]


def test_no_built_file_is_committed() -> None:
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, timeout=30)
    # Outside a clone (an unpacked sdist) git lists nothing.
    built = [name for name in listed.stdout.splitlines() if name.endswith((".so", ".o", ".pyc", "_pb2.py", "_pb2.pyi"))]
    assert built == []

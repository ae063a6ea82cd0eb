"""Finds the unit tests that can notice a change of a module, the nearest first, from who imports whom."""

import ast
import pathlib
from collections.abc import Iterable, Mapping

TREES = ("supervisor", "shim", "tests")
FAR = 1000  # more imports than lead anywhere


def modules(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """Every Python file of the product and of its tests without root, by its module's name."""
    found = {}
    for path in (path for tree in TREES for path in (root / tree).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[:2] != ("tests", "system"):
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, known: Iterable[str]) -> set[str]:
    """Which of the known modules a source names in its imports, those inside of functions as well."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & set(known)


def distances(module: str, imports: Mapping[str, set[str]]) -> dict[str, int]:
    """How many imports each module is away from this one, of those that reach it at all."""
    found, layer = {module: 0}, {module}
    while layer:
        above = {name for name, names in imports.items() if names & layer} - found.keys()
        found |= dict.fromkeys(above, found[next(iter(layer))] + 1)
        layer = above
    return found


def mirror(path: str) -> str:
    """`supervisor/store/rows.py` -> `tests/supervisor/store/test_rows`, with which the paths of its own tests begin."""
    directory, _, name = path.removesuffix(".py").rpartition("/")
    return f"tests/{directory}/test_{name}"


class Nearest:
    """Of one tree, which is read once."""

    def __init__(self, root: pathlib.Path) -> None:
        known = modules(root)
        self._paths = {name: str(file.relative_to(root)) for name, file in known.items()}
        self._imports = {name: imported(file.read_text(), known) for name, file in known.items()}

    def tests(self, path: str) -> list[str]:
        """The test files for a module's path, all below the root: the module's own ones, then by distance, and at last
        those of its room: a command of exitctl is loaded by its name, which no import shows."""
        own = mirror(path)
        room = own.rpartition("/")[0]
        module = next(name for name, file in self._paths.items() if file == path)
        far = distances(module, self._imports)
        found = {file: far.get(name, FAR) for name, file in self._paths.items() if _is_test(name)}
        tests = {file: way for file, way in found.items() if way < FAR or file.rpartition("/")[0] == room}
        return sorted(tests, key=lambda test: (not test.startswith(own), tests[test], test))


def _is_test(module: str) -> bool:
    return module.rpartition(".")[2].startswith("test_")

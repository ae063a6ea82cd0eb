"""docs/errnos.md against the code: it names every place that makes one of these system calls, and only such places."""

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

from tests.test_complaints import named_below

TESTS = pathlib.Path(__file__).resolve().parent
ROOT = TESTS.parent
PAGE = ROOT / "docs/errnos.md"
# Programs of their own, which hold nobody's exit.
ELSEWHERE = ("supervisor/cli/", "supervisor/compare/", "shim/core/fuzz/")
PYTHON = {
    "os.pidfd_open",
    "epoll.open_pid",
    "epoll.open_process",
    "open_pid",
    "open_process",
    "subprocess.Popen",
    "subprocess.run",
    "os.posix_spawn",
    "os.fork",
    "os.fsync",
    "threading.Thread",
    "ThreadPoolExecutor",
    "threads.pool",
    "threads.start",
    "socket.socket",
    "socket.socketpair",
    "pyinotify.WatchManager",
}
PYTHON_METHODS = {"accept"}  # of whatever object
C = re.compile(
    r"\b(accept4|v?fork|pidfd_open_raw|proc_stat_read|socket|opendir|signalfd|epoll_create1|memfd_create|pipe2"
    r"|posix_fallocate|fsync|fdatasync|pthread_create)\("
)
C_FUNCTION = re.compile(r"^[a-z][\w *]*?\b(\w+)\([^;]*$")
ROW = re.compile(r"^\| `([\w/.]+):(\w+)` \| `(\w+(?:\.\w+)*)` \|(.*)\|$", re.M)
Site = tuple[str, str, str]  # file, function, call


def python_sites(path: pathlib.Path) -> Iterator[Site]:
    def walk(node: ast.AST, where: str) -> Iterator[Site]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else where
            if isinstance(child, ast.Call):
                name = ast.unparse(child.func)
                method = name.rpartition(".")[2]
                if name in PYTHON or (method in PYTHON_METHODS and "." in name):
                    yield str(path.relative_to(ROOT)), inner, name if name in PYTHON else method
            yield from walk(child, inner)

    return walk(ast.parse(path.read_text()), "module")


def c_sites(path: pathlib.Path) -> Iterator[Site]:
    function = ""
    for line in path.read_text().splitlines():
        if line[:1].isalpha():
            begun = C_FUNCTION.match(line)
            function = begun[1] if begun else function
        elif not line.lstrip().startswith(("/*", "*", "//")):
            for call in C.findall(line):
                yield str(path.relative_to(ROOT)), function, call


def sites() -> set[Site]:
    found = {
        site for top in ("supervisor", "shim") for path in (ROOT / top).rglob("*.py") for site in python_sites(path)
    }
    found |= {site for path in (ROOT / "shim").rglob("*.c") for site in c_sites(path)}
    return {site for site in found if not site[0].startswith(ELSEWHERE)}


def rows() -> dict[Site, str]:
    return {(file, function, call): rest for file, function, call, rest in ROW.findall(PAGE.read_text())}


def test_the_page_names_every_place_that_makes_such_a_call_and_no_other() -> None:
    named, there = set(rows()), sites()
    assert sorted(there - named) == []
    assert sorted(named - there) == []


def test_every_row_says_what_is_done_and_names_tests_that_exist() -> None:
    known = named_below(TESTS)
    for site, rest in rows().items():
        cells = [cell.strip() for cell in rest.split("|")]
        assert len(cells) == 3 and all(cells), site
        for name in re.findall(r"`(tests/[^`]+)`", cells[2]):
            assert name in known, (site, name)


def test_a_call_is_found_in_its_function(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_errnos.ROOT", tmp_path)
    python, c = tmp_path / "x.py", tmp_path / "x.c"
    python.write_text("class A:\n    async def b(self):\n        return [os.pidfd_open(1), self.x.accept()]\n")
    assert list(python_sites(python)) == [("x.py", "b", "os.pidfd_open"), ("x.py", "b", "accept")]
    one = "static int one(int a)\n{\n\treturn accept4(a, 0, 0, 0);\n}\n\n"
    c.write_text(f"{one}int two(int a,\n\t  int b)\n{{\n\tfork();\n}}\n")
    assert list(c_sites(c)) == [("x.c", "one", "accept4"), ("x.c", "two", "fork")]

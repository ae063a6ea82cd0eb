"""Whoever reaps takes the status for good: each program does it at known places, and this list is all of them."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
WAITS = re.compile(r"\b(?:waitid|waitpid|wait[34]?)\s*\([^;]*|SYS_wait\w+[^;]*")
PYTHON_WAITS = {"wait", "wait3", "wait4", "waitid", "waitpid", "waitstatus_to_exitcode"}


def reaping(folder: str) -> list[tuple[str, str]]:
    """(file, whose status) of every call in the C of one program that takes a status away, WNOWAIT left out."""
    found = []
    for path in sorted((ROOT / "shim" / folder).glob("*.c")):
        code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        for call in WAITS.findall(code):
            if "WNOWAIT" not in call:
                found.append((path.name, "one pid" if "P_PID," in call else call))
    return found


def python_waits(path: pathlib.Path) -> list[str]:
    """What the file calls of `os.wait...`."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    names = [f for f in calls if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == "os"]
    return [f"os.{each.attr}" for each in names if each.attr in PYTHON_WAITS]


def test_each_program_reaps_strangers_at_one_place() -> None:
    # Runtime commands are waited for by their own pid, before anybody looks at all children; so is, by the extension,
    # the child that holds a user namespace. That has no signal for its end: a wait for all children does not see it.
    assert reaping("core") == [("command.c", "one pid"), ("native.c", "one pid"), ("reap.c", "one pid")]
    assert reaping("keeper") == [("children.c", "one pid")]
    assert reaping("launcher") == [("launch.c", "one pid")]
    # Nobody asks how what a pod leaves behind has ended.
    assert [file for file, _ in reaping("pause")] == ["pause.c"] * 2  # of a pod, and of a container with a program


def test_python_waits_for_nobody_but_its_own_commands() -> None:
    found = {
        str(path.relative_to(ROOT)): waits
        for top in ("shim", "supervisor")
        for path in (ROOT / top).rglob("*.py")
        if (waits := python_waits(path))
    }
    # Programs of their own: the demo and the comparison, with all that they have begun below them.
    assert set(found.pop("supervisor/compare/descent.py")) == {"os.waitid"}
    assert set(found.pop("supervisor/compare/guard.py")) == {"os.waitpid", "os.waitstatus_to_exitcode"}
    # A shim that the daemon had to spawn itself, at its end or where it cannot be watched; orphans that came to it as
    # PID 1; and the child that the probe makes.
    assert found == {
        f"supervisor/monitor/{name}.py": ["os.waitid"] for name in ("witness", "shims", "orphans", "probe")
    }

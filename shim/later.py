"""Modules that exitd's programs seldom or never use, or not at their start, loaded when something of them is used:
libraries', and the daemon's own of `supervisor/system/late.py`.

click reads inspect to take the indentation out of help texts, protobuf its implementation in Python beside that in C: a
tenth and more of what a command's start takes. A library's `import` finds the stand-in that `later` has put into
sys.modules; the first use of a name that is not given loads the module, and the stand-in has all of its names then.
"""

import contextlib
import importlib
import sys
from _thread import allocate_lock  # threading has this one, and more
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

_CO_COROUTINE = 0x80  # inspect.CO_COROUTINE
PURE_PROTOBUF = "google.protobuf.internal.python_message"
_leaving = allocate_lock()  # held while a stand-in takes itself out of sys.modules: never the module in its place


def later(name: str, **given: object) -> None:
    """Call it before the first import of the library. Does nothing for a module that is loaded. `given`: what is used
    of it without loading it, by name; it does the same as the module's own."""
    if name not in sys.modules:
        sys.modules[name] = _Later(name, given)


def load(name: str) -> None:
    """Load a module that `later` has put off, now; one that is loaded stays. Raises what its import raises; the next
    use of a stand-in tries again."""
    module = sys.modules.get(name)
    if module is None:
        importlib.import_module(name)
    elif isinstance(module, _Later):
        module.load()


@contextlib.contextmanager
def without(name: str) -> Iterator[None]:
    """For the block a module that is not loaded yet cannot be imported, so that a library goes without it."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


class _Later(ModuleType):
    def __init__(self, name: str, given: dict[str, object]) -> None:
        super().__init__(name)
        vars(self).update(given)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # asked of every module by tools that look for one
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.load()
        try:
            return vars(self)[name]
        except KeyError as error:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from error

    def load(self) -> None:
        with _leaving:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        vars(self).update(vars(importlib.import_module(self.__name__)))  # waits while another thread loads it


def _is_function(thing: object) -> bool:
    return isinstance(thing, FunctionType)


def _unwrapped(called: Any) -> Any:
    """Do what inspect.unwrap does: follow `__wrapped__` to what has been decorated. Raises ValueError for a circle."""
    seen = {id(called)}
    while hasattr(called, "__wrapped__"):
        called = called.__wrapped__
        if id(called) in seen:
            raise ValueError(f"wrapper loop when unwrapping {called!r}")
        seen.add(id(called))
    return called


def _is_coroutine_function(called: object) -> bool:
    """Do what inspect.iscoroutinefunction does: whether it is a function, a method or a partial of `async def`."""
    while isinstance(called, MethodType | partial):
        called = called.__func__ if isinstance(called, MethodType) else called.func
    return isinstance(called, FunctionType) and bool(called.__code__.co_flags & _CO_COROUTINE)


def cleandoc(text: str) -> str:
    """Do what inspect.cleandoc does: take the common indentation of all lines but the first, and empty lines around."""
    first, *rest = text.expandtabs().split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=None)
    lines = [first.lstrip(), *(line[margin:] if margin is not None else line for line in rest)]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        del lines[0]
    return "\n".join(lines)


# What click, dataclasses and asyncio use of inspect as a rule, the latter for the text of a task.
OF_INSPECT: dict[str, object] = {
    "cleandoc": cleandoc,
    "iscoroutinefunction": _is_coroutine_function,
    "isfunction": _is_function,
    "unwrap": _unwrapped,
}

import functools
import importlib
import inspect
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim import later as module
from shim.later import OF_INSPECT, cleandoc, later, load, without


@given(st.text(alphabet="a \t\n"))
def test_help_texts_come_out_as_inspect_has_them(text: str) -> None:
    assert cleandoc(text) == inspect.cleandoc(text)


def test_a_module_is_loaded_when_something_of_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    later("colorsys", ONE_SIXTH="given")
    seen = importlib.import_module("colorsys")
    assert seen.ONE_SIXTH == "given" and sys.modules["colorsys"] is seen
    assert not hasattr(seen, "__file__") and sys.modules["colorsys"] is seen
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(seen.rgb_to_hls)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    real = sys.modules["colorsys"]
    assert found == [real.rgb_to_hls] * 4 and real is not seen and seen.ONE_SIXTH == 1 / 6
    with pytest.raises(AttributeError, match="colorsys"):
        seen.nothing  # noqa: B018
    later("colorsys")
    assert sys.modules["colorsys"] is real


def test_what_was_put_off_can_be_loaded_and_one_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    later("put_off_here")
    seen = importlib.import_module("put_off_here")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError):
            load("put_off_here")
    (tmp_path / "put_off_here.py").write_text("VALUE = object()")
    importlib.invalidate_caches()
    load("put_off_here")
    real = sys.modules["put_off_here"]
    assert real is not seen and seen.VALUE is real.VALUE
    del sys.modules["put_off_here"]
    load("sys")


def test_two_threads_that_use_a_module_first_at_the_same_time_have_the_same_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second comes while the first is about to take the stand-in away."""
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    later("colorsys")
    seen, found, second_goes_no_further = importlib.import_module("colorsys"), list[object](), threading.Event()

    def use() -> None:
        found.append(seen.rgb_to_hls)
        second_goes_no_further.set()

    second = threading.Thread(target=use)

    class Modules(dict[str, object]):
        def get(self, name: str, default: object = None) -> object:
            there = sys.modules.get(name, default)
            if threading.current_thread() is not second and second.ident is None:
                second.start()
                assert second_goes_no_further.wait(30)
            return there

        def __delitem__(self, name: str) -> None:
            del sys.modules[name]

    class Lock:
        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            if not self._lock.acquire(blocking=False):
                second_goes_no_further.set()
                self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    monkeypatch.setattr(module, "sys", SimpleNamespace(modules=Modules()))
    monkeypatch.setattr(module, "_leaving", Lock(), raising=False)
    first = seen.rgb_to_hls
    second.join()
    assert found == [first] == [sys.modules["colorsys"].rgb_to_hls]


def test_a_module_that_is_missing_says_so_at_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    later("not_there_at_all")
    import not_there_at_all  # type: ignore[import-not-found]

    with pytest.raises(ModuleNotFoundError):
        not_there_at_all.anything  # noqa: B018


def test_a_library_goes_without_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with without("colorsys"), pytest.raises(ModuleNotFoundError):
        import colorsys
    import colorsys

    with without("colorsys"):
        assert sys.modules["colorsys"] is colorsys
    assert sys.modules["colorsys"] is colorsys


class Things:
    def method(self) -> None: ...

    async def waits(self) -> None: ...


@functools.wraps(Things.method)
def decorated() -> None: ...


@pytest.mark.parametrize(
    "thing",
    [
        *(Things.method, Things().method, Things.waits, Things().waits, functools.partial(Things().waits), decorated),
        *(functools.partial(functools.partial(Things.waits), 1), lambda: None, len, Things, 1),
    ],
)
def test_what_stands_for_inspect_does_as_it_does(thing: Any) -> None:
    for name in ("iscoroutinefunction", "isfunction", "unwrap"):
        own: Any = OF_INSPECT[name]
        assert own(thing) == getattr(inspect, name)(thing), name


def test_a_circle_of_decorators_is_no_endless_loop() -> None:
    def called() -> None: ...

    called.__wrapped__ = called  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="loop"):
        OF_INSPECT["unwrap"](called)  # type: ignore[operator]


def test_the_daemon_does_without_what_it_seldom_or_never_uses() -> None:
    """Together they were 20 of the 220 ms of processor of its import, and OpenSSL's library."""
    names = ("_ssl", "_hashlib", "ast", "google.protobuf.text_format", "hmac", "tarfile", "tempfile", "tomllib._parser")
    code = (
        "import sys, supervisor.__main__;"
        f"print(*(name for name in {names} if hasattr(sys.modules.get(name), '__file__')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "\n"


def test_the_daemon_has_all_its_modules_before_the_files_below_it_change() -> None:
    code = (
        "import sys, supervisor.__main__; from supervisor import daemon; from supervisor.system.late import MODULES;"
        "there = lambda: sum(hasattr(sys.modules[name], '__file__') for name in MODULES);"
        "print(there()); daemon.load_rest(); print(there() - len(MODULES))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0\n0\n"


def test_the_daemon_has_its_hashes_also_when_descriptors_have_run_out_since() -> None:
    """The first use may come just then: of a log's head, of an image."""
    code = (
        "import os, resource, supervisor.__main__; from supervisor import daemon;"
        "daemon.load_rest();"
        "fd = os.open('/', os.O_RDONLY); resource.setrlimit(resource.RLIMIT_NOFILE, (fd, fd));"
        "print(len(daemon.hashlib.blake2b(b'x', digest_size=16).digest() + daemon.hashlib.sha256(b'x').digest()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "48\n"


def test_a_command_loads_neither_inspect_nor_the_slow_protobuf() -> None:
    """They were 10 of the 46 ms beside the interpreter's own."""
    code = (
        "import sys, supervisor.cli.__main__, supervisor.cli.look, protos.exitd.v1.exitd_pb2 as pb;"
        "pb.ListRequest().SerializeToString();"
        "print(*(name for name in ('ast', 'google.protobuf.text_format') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "\n"

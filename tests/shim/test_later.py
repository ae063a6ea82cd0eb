import importlib
import inspect
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.later import cleandoc, later, without


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


def test_the_daemon_does_without_what_it_never_uses() -> None:
    names = "('_ssl', 'google.protobuf.text_format')"
    code = f"import sys, supervisor.__main__; print(*(name for name in {names} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "\n"


def test_a_command_loads_neither_inspect_nor_the_slow_protobuf() -> None:
    """They were 10 of the 46 ms beside the interpreter's own."""
    code = (
        "import sys, supervisor.cli.__main__, supervisor.cli.look, protos.exitd.v1.exitd_pb2 as pb;"
        "pb.ListRequest().SerializeToString();"
        "print(*(name for name in ('ast', 'google.protobuf.text_format') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "\n"

"""The page about the configuration and the example file, held against the code."""

import pathlib
import re

import pytest

from supervisor.__main__ import KEYS
from supervisor.config import file, settings
from supervisor.config.settings import Config, config_of, in_force
from supervisor.model.errors import BadConfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/configuration.md").read_text()
EXAMPLE = ROOT / "systemd/config.toml"
ROW = re.compile(r"^\| `([\w.]+)` \|([^|]*)\|([^|]*)\|", re.MULTILINE)


def rows() -> dict[str, tuple[str, str]]:
    """Default and flag by key, as the page has them."""
    return {
        key.replace("NAME", "*"): (default.strip(" `"), flag.strip(" `")) for key, default, flag in ROW.findall(PAGE)
    }


def test_the_page_has_every_key_and_no_other_in_the_order_of_the_code() -> None:
    assert list(rows()) == list(file.KEYS)


@pytest.mark.parametrize("path", settings.PLAIN, ids=".".join)
def test_the_page_has_the_defaults(path: tuple[str, ...]) -> None:
    assert rows()[".".join(path)][0] == settings.shown(settings.default_of(path))


def test_the_page_has_the_flags() -> None:
    hidden = {"reconcile_seconds", "runtime_seconds"}
    flags = {".".join(path): f"--{name.replace('_', '-')}" for name, path in KEYS.items() if name not in hidden}
    assert {key: flag for key, (_, flag) in rows().items() if flag} == flags


def test_the_page_says_which_keys_are_read_only_at_a_start() -> None:
    said = {line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `") and "only at a start" in line}
    assert said == {".".join(path) for path in settings.FIXED}


def test_the_example_has_every_key_and_the_defaults() -> None:
    values = file.parse(EXAMPLE.read_bytes(), str(EXAMPLE))
    found = config_of(in_force(values))
    assert {path for path in values if path[0] != "runtimes"} == set(settings.PLAIN)
    assert {path[2] for path in values if path[0] == "runtimes"} == {
        key.rpartition(".")[2] for key in file.KEYS if key.startswith("runtimes.")
    }
    assert found == settings.Config(runtimes=found.runtimes)
    assert (found.runtime("fast").path, found.runtime("").name) == ("/usr/bin/crun", "runc")


def test_the_errors_on_the_page_are_the_ones_a_file_gives() -> None:
    lines = ["", "", "", "", "", "[limits]", "scratch_mb = 1", "[runtimes.crun]", "handlers = ['fast']", ""]
    lines += ["[runtimes.kata]", "handlers = ['fast']"]
    with pytest.raises(BadConfig) as caught:
        file.parse("\n".join(lines).encode(), file.FILE)
    shown = [line.removeprefix("exitd: ") for line in PAGE.splitlines() if line.startswith("exitd: /")]
    assert shown == str(caught.value).splitlines()


def test_the_file_on_the_page_is_the_one_that_is_read() -> None:
    assert f"`{file.FILE}`" in PAGE
    assert Config().root in PAGE

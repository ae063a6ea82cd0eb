"""What is in force, of what was given where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.config import settings
from supervisor.config.settings import Config, Given, Limits, Retention, RuntimeEntry, Values, in_force
from supervisor.config.tomllines import Path
from supervisor.engine.reconcile import keep_of
from supervisor.store.database import Keep

RUNTIME, CREATE = ("limits", "runtime_seconds"), ("limits", "create_seconds")


def from_line(line: int, **values: object) -> Values:
    return {("limits", name): Given(value, f"/f:{line}") for name, value in values.items()}


def test_with_nothing_given_all_is_default() -> None:
    values = in_force()
    assert settings.config_of(values) == Config()
    assert {each.origin for each in settings.settings(values)} == {"default"}


def test_a_flag_goes_before_a_variable_and_that_before_the_file() -> None:
    path: Path = ("state",)
    layers: list[Values] = [
        {path: Given("/flag", "flag")},
        {path: Given("/env", "EXITD_STATE")},
        {path: Given("/file", "/f:1")},
    ]
    found = [in_force(*layers[skipped:])[path] for skipped in range(4)]
    assert [(each.value, each.origin) for each in found] == [
        ("/flag", "flag"),
        ("/env", "EXITD_STATE"),
        ("/file", "/f:1"),
        ("/run/exitd", "default"),
    ]


def test_a_create_may_take_four_times_as_long_as_a_command_unless_it_is_said() -> None:
    assert in_force(from_line(3, runtime_seconds=0.5))[CREATE] == Given(2.0, "/f:3")
    assert in_force(from_line(3, runtime_seconds=0.5), from_line(4, create_seconds=9.0))[CREATE] == Given(9.0, "/f:4")
    assert Limits().create_seconds == 4 * Limits().runtime_seconds


@given(st.lists(st.sampled_from(settings.PLAIN), unique=True))
def test_every_value_given_is_in_force_under_its_origin_and_no_other_changes(paths: list[Path]) -> None:
    given_ = {path: Given(f"value of {path}", "/f:7") for path in paths if path != RUNTIME}
    values = in_force(given_)
    assert {path: each for path, each in values.items() if each.origin != "default"} == given_
    assert values.keys() == set(settings.PLAIN)


def test_the_kept_numbers_are_the_stores_own() -> None:
    assert keep_of(Retention()) == Keep()
    assert keep_of(Retention(5, 0.5, 6, 2)) == Keep(5, 12 * 3600 * 10**9, 6, 2 * 24 * 3600 * 10**9)


# -- runtimes

KATA = RuntimeEntry("kata", runtime_type="io.containerd.kata.v2", handlers=("kata-qemu", "kata-clh"))
OWN = ("/opt/containerd-shim-my-own-v2", "io.containerd.my-own.v2")
MINE = RuntimeEntry("mine", path="/opt/mine", options=("--debug",))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("", RuntimeEntry("crun")),
        ("runc", RuntimeEntry("runc")),
        ("/usr/bin/crun", RuntimeEntry("/usr/bin/crun", path="/usr/bin/crun")),
        ("kata", KATA),
        ("kata-qemu", KATA),
        ("kata-clh", KATA),
        ("mine", MINE),
        ("/opt/mine", RuntimeEntry("/opt/mine", path="/opt/mine")),
        ("/opt/containerd-shim-my-own-v2", RuntimeEntry("/opt/containerd-shim-my-own-v2", *OWN)),
        (
            "/opt/containerd-shim-v2/crun",
            RuntimeEntry("/opt/containerd-shim-v2/crun", path="/opt/containerd-shim-v2/crun"),
        ),
        ("io.containerd.runc.v2", RuntimeEntry("io.containerd.runc.v2", runtime_type="io.containerd.runc.v2")),
    ],
)
def test_a_runtime_is_found_by_name_handler_path_or_type(name: str, found: RuntimeEntry) -> None:
    assert Config(default_runtime="crun", runtimes=(KATA, MINE)).runtime(name) == found


def test_the_default_may_be_a_handler() -> None:
    assert Config(default_runtime="kata-clh", runtimes=(KATA, MINE)).runtime("") == KATA


def test_an_entry_named_like_a_type_is_of_that_type_unless_it_has_a_path() -> None:
    name = "io.containerd.runc.v2"
    bare: Values = {("runtimes", name, "handlers"): Given(("h",), "/f:1")}
    with_path: Values = {("runtimes", name, "path"): Given("/x", "/f:1")}
    assert settings.config_of(in_force(bare)).runtime("h").runtime_type == name
    assert settings.config_of(in_force(with_path)).runtime(name) == RuntimeEntry(name, path="/x")


def test_an_entry_with_the_path_of_a_shim_v2_binary_is_of_its_type() -> None:
    with_path: Values = {("runtimes", "mine", "path"): Given(OWN[0], "/f:1")}
    assert settings.config_of(in_force(with_path)).runtime("mine") == RuntimeEntry("mine", *OWN)


# -- reloads


def test_what_cannot_change_while_it_runs_stays_and_is_said() -> None:
    running = in_force({("root",): Given("/r", "flag")})
    given_ = {
        ("root",): Given("/other", "/f:1"),
        ("limits", "image_gib"): Given(1, "/f:2"),
        ("limits", "scratch_mib"): Given(5, "/f:3"),
    }
    kept, words = settings.held(running, in_force(given_))
    assert words == (
        "/f:1: root cannot change while exitd runs, /r stays in force; restart exitd for /other",
        "/f:2: limits.image_gib cannot change while exitd runs, 64 stays in force; restart exitd for 1",
    )
    assert (kept["root",], kept["limits", "image_gib"]) == (running["root",], running["limits", "image_gib"])
    assert settings.changed(running, kept) == ["limits.scratch_mib"]


def test_a_fixed_value_that_only_moved_in_the_file_has_its_new_line() -> None:
    kept, words = settings.held(in_force({("root",): Given("/r", "/f:1")}), in_force({("root",): Given("/r", "/f:9")}))
    assert (words, kept["root",].origin) == ((), "/f:9")


def test_every_fixed_key_is_one() -> None:
    assert set(settings.PLAIN) > settings.FIXED


def test_changes_name_what_came_went_and_differs() -> None:
    name = ("runtimes", "a.b", "path")
    with_runtime = in_force({name: Given("/x", "/f:1")})
    moved = in_force({name: Given("/x", "/f:2"), ("default_runtime",): Given("crun", "/f:1")})
    assert settings.changed(in_force(), with_runtime) == ['runtimes."a.b".path']
    assert settings.changed(with_runtime, in_force()) == ['runtimes."a.b".path']
    assert settings.changed(with_runtime, moved) == ["default_runtime"]


# -- for people


def test_settings_show_plain_values_then_the_runtimes() -> None:
    values = in_force(
        from_line(2, runtime_seconds=0.25),
        {("runtimes", "b", "options"): Given(("--debug", "ü"), "/f:9"), ("runtimes", "a", "path"): Given("/x", "/f:8")},
    )
    shown = [(each.name, each.value, each.origin) for each in settings.settings(values)]
    assert shown[0] == ("root", "/var/lib/exitd", "default")
    assert ("limits.runtime_seconds", "0.25", "/f:2") in shown
    assert ("retention.events", "50000", "default") in shown
    assert shown[-2:] == [("runtimes.a.path", "/x", "/f:8"), ("runtimes.b.options", '["--debug", "ü"]', "/f:9")]


def test_large_numbers_of_seconds_are_shown_in_full() -> None:
    assert settings.shown(2_592_000.0) == "2592000"


def test_the_configuration_is_frozen() -> None:
    for fact in (Config(), Limits(), Retention(), RuntimeEntry("r"), Given(1, "flag")):
        assert hasattr(fact, "__values_of__")  # made by `frozen`

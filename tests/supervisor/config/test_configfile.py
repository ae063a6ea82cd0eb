"""Files that are right, and every way of being wrong, each reported with its line."""

import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.config import file, settings
from supervisor.config.file import MOST_BYTES, parse, read_file
from supervisor.config.settings import CgroupDriver, Given, config_of, in_force
from supervisor.model.errors import BadConfig
from supervisor.model.values import LogDriver

WHOLE = b"""\
root = "/srv/exitd/"
state = "/run/x"
default_runtime = "kata"
cgroup_driver = "cgroupfs"

[limits]
runtime_seconds = 5
scratch_mib = 64

[retention]
exit_seconds = 0
events_days = 0.5

[runtimes.kata]
runtime_type = "io.containerd.kata.v2"
pod_annotations = ["com.github.containers.virtcontainers.sandbox_cpu",
                   "com.github.containers.virtcontainers.sandbox_mem"]
container_annotations = ["com.github.containers.virtcontainers.storage_spec"]
handlers = ["kata-qemu"]

[runtimes]
crun.path = "/usr/bin/crun"
crun.options = ["--debug"]
"""


@pytest.mark.parametrize(("size", "count"), [('"10m"', 10 << 20), ("4096", 4096), ('"0"', 0), ("0", 0)])
def test_a_size_is_a_number_of_bytes_or_has_a_unit(size: str, count: int) -> None:
    text = f'log_driver = "json-file"\nlog_max_size = {size}\nlog_max_files = 3'
    found = config_of(in_force(parse(text.encode(), "/c")))
    assert (found.log_driver, found.log_max_size, found.log_max_files) == (LogDriver.JSON_FILE, count, 3)


def wrong(text: str) -> list[str]:
    with pytest.raises(BadConfig) as caught:
        parse(text.encode(), "/c")
    return str(caught.value).splitlines()


def test_a_whole_file_is_what_it_says() -> None:
    found = config_of(in_force(parse(WHOLE, "/c")))
    assert (found.root, found.state, found.default_runtime) == ("/srv/exitd", "/run/x", "kata")
    assert found.cgroup_driver is CgroupDriver.CGROUPFS
    assert (found.limits.runtime_seconds, found.limits.create_seconds, found.limits.scratch_mib) == (5, 20, 64)
    assert (found.retention.exit_seconds, found.retention.events_days) == (0, 0.5)
    kata, crun = found.runtime("kata-qemu"), found.runtime("crun")
    assert (kata.runtime_type, kata.path) == ("io.containerd.kata.v2", "")
    assert [name.rpartition(".")[2] for name in kata.pod_annotations] == ["sandbox_cpu", "sandbox_mem"]
    assert kata.container_annotations == ("com.github.containers.virtcontainers.storage_spec",)
    assert (crun.path, crun.options) == ("/usr/bin/crun", ("--debug",))


def test_every_value_has_the_line_it_is_from() -> None:
    origins = {setting.name: setting.origin for setting in settings.settings(in_force(parse(WHOLE, "/c")))}
    assert origins["root"] == "/c:1"
    assert origins["limits.runtime_seconds"] == origins["limits.create_seconds"] == "/c:7"
    assert origins["limits.scratch_files"] == "default"
    assert origins["runtimes.kata.pod_annotations"] == "/c:16"
    assert origins["runtimes.crun.options"] == "/c:23"


def test_an_empty_file_is_a_file() -> None:
    assert parse(b"", "/c") == parse(b"# nothing yet\n[limits]\n[runtimes.x]\n", "/c") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rot = '/x'", "rot: there is no such key; did you mean root?"),
        ("runtime_seconds = 3", "runtime_seconds: there is no such key; did you mean limits.runtime_seconds?"),
        ("[userns]\nbase = 1000", "userns.base: must be 0, for none, or a whole number from 65536 to"),
        (
            "[limits]\nexit_seconds = 3",
            "limits.exit_seconds: there is no such key; did you mean retention.exit_seconds?",
        ),
        ("[runtimes.x]\npod_anotations = []", "runtimes.x.pod_anotations: there is no such key; did you mean pod_ann"),
        ("[runtime.x] # here\npath = '/x'", "runtime: there is no such key; did you mean runtimes?"),
        ("zzz = 1", "zzz: there is no such key; here there are cgroup_driver, default_runtime, kernel_witness, limits"),
        ("'' = 1", '"": there is no such key; here there are'),
        ("'limits.runtime_seconds' = 1", '"limits.runtime_seconds": there is no such key'),
        ("[limits]\nruntime_seconds.x = 1", "limits.runtime_seconds: must be a number from 0.1 to 3600, and is {"),
        ("limits = 3", "limits: must be a table: [limits]"),
        ("[[runtimes]] # here\npath = '/x'", "runtimes: must be a table: [runtimes]"),
        ("[runtimes]\nrunc = '/x'", "runtimes.runc: must be a table: [runtimes.runc]"),
        ("root = 'relative'", 'root: must be an absolute path, and is "relative"'),
        ("root = 3", "root: must be an absolute path, and is 3"),
        ("default_runtime = 'a b'", "default_runtime: must be a runtime's name"),
        ("default_runtime = ''", "default_runtime: must be a runtime's name"),
        ("default_runtime = '/'", "default_runtime: must be the absolute path of a program"),
        ("cgroup_driver = 'cgroup'", "cgroup_driver: must be one of auto, systemd, cgroupfs"),
        ("cgroup_driver = []", "cgroup_driver: must be one of auto, systemd, cgroupfs, and is []"),
        ("log_driver = 'syslog'", "log_driver: must be one of cri, json-file, journald, none"),
        ("log_max_size = 'much'", "log_max_size: must be 0, or a number of bytes from 4096 on, or a size such as"),
        ("log_max_size = '4095'", "log_max_size: must be 0, or a number of bytes from 4096 on, or a size such as"),
        ("log_max_size = true", "log_max_size: must be 0"),
        ("log_max_size = 1.5", "log_max_size: must be 0"),
        ("log_max_size = '9000000000g'", "log_max_size: must be 0"),
        ("log_max_files = 0", "log_max_files: must be a whole number from 1 to 100"),
        ("[limits]\nruntime_seconds = true", "limits.runtime_seconds: must be a number from 0.1 to 3600, and is true"),
        ("[limits]\nruntime_seconds = nan", "must be a number from 0.1 to 3600, and is NaN"),
        ("[limits]\nruntime_seconds = inf", "must be a number"),
        ("[limits]\nruntime_seconds = 0", "must be a number from 0.1"),
        ("[limits]\nscratch_mib = 1.5", "limits.scratch_mib: must be a whole number from 1 to 1048576, and is 1.5"),
        ("[limits]\nscratch_mib = true", "must be a whole number"),
        ("[retention]\nexit_seconds = '5m'", 'must be a number from 0 to 2592000, and is "5m"'),
        ("[retention]\nexit_seconds = 2026-01-01", 'and is "2026-01-01"'),
        ("[runtimes.x]\npath = 'runc'", "runtimes.x.path: must be the absolute path of a program"),
        ("[runtimes.x]\nruntime_type = 'kata'", "must be of the form io.containerd.NAME.vN"),
        ("[runtimes.x]\noptions = '--debug'", "runtimes.x.options: must be a list of arguments, each a string"),
        ("[runtimes.x.options] # here\nSystemdCgroup = true", "runtimes.x.options: must be a list of arguments"),
        ("[runtimes.x]\nhandlers = ['a', 3]", "runtimes.x.handlers: must be a list of names"),
        ("[runtimes.x]\nhandlers = ['a/b']", "runtimes.x.handlers: must be a list of names"),
        ("[runtimes.'a b'] # here\npath = '/x'", 'runtimes."a b": a runtime\'s name has letters'),
        ("[runtimes.x]\npath = '/x'\nruntime_type = 'io.containerd.x.v2'", "there is a path too"),
        ("a = [", "Invalid value"),
    ],
)
def test_what_is_wrong_is_reported_with_file_line_and_key(text: str, words: str) -> None:
    """In the last line, unless a comment says where."""
    lines = f"\n{text}".splitlines()
    here = next((number for number, line in enumerate(lines, 1) if line.endswith("# here")), len(lines))
    (reported,) = wrong("\n".join(lines) + "\n")
    assert reported.startswith(f"/c:{here}: ")
    assert words in reported


def test_all_that_is_wrong_is_reported_at_once_in_the_order_of_the_file() -> None:
    reported = wrong("root = 1\nfoo = 2\n[limits]\nscratch_mib = 0\nscratch_files = 'x'\n[runtimes.r]\npath = 3\n")
    assert [line.split(": ")[0:2] for line in reported] == [
        ["/c:1", "root"],
        ["/c:2", "foo"],
        ["/c:4", "limits.scratch_mib"],
        ["/c:5", "limits.scratch_files"],
        ["/c:7", "runtimes.r.path"],
    ]


def test_two_runtimes_with_one_handler_are_refused_with_both_lines() -> None:
    reported = wrong("[runtimes.a]\nhandlers = ['h']\n[runtimes.b]\nhandlers = ['g', 'h']\n")
    assert reported == ["/c:4: runtimes.b.handlers: h is a handler of a already, in line 2"]


def test_a_handler_that_is_another_runtimes_name_is_refused_and_the_own_name_is_not() -> None:
    reported = wrong("[runtimes.a]\nhandlers = ['b', 'a']\n[runtimes.b]\npath = '/x'\n")
    assert reported == ["/c:2: runtimes.a.handlers: b is another runtime's name already, in line 3"]


def test_a_long_wrong_value_is_cut() -> None:
    (reported,) = wrong(f"root = '{'x' * 500}'")
    assert len(reported) < 150 and reported.endswith("...")


def test_the_keys_are_those_of_the_configuration() -> None:
    assert {tuple(key.split(".")) for key in file.KEYS if "*" not in key} == set(settings.PLAIN)


@pytest.mark.parametrize("path", settings.PLAIN)
def test_every_default_would_be_right_in_a_file(path: tuple[str, ...]) -> None:
    value = settings.default_of(path)
    in_a_file = list(value) if isinstance(value, tuple) else value
    assert file.KEYS[".".join(path)](in_a_file) == value


ENTRIES = st.dictionaries(
    st.sampled_from(["limits", "retention", "root", "x"]), st.integers() | st.text("/x", max_size=3)
)


@given(ENTRIES)
def test_any_toml_is_right_or_every_complaint_has_a_line(table: dict[str, object]) -> None:
    text = "".join(f"{key} = {value!r}\n" for key, value in table.items())
    try:
        parse(text.encode(), "/c")
    except BadConfig as error:
        assert all(line.startswith("/c:") and line.split(":")[1].isdigit() for line in str(error).splitlines())


# -- the file itself


def test_a_file_is_read_and_an_absent_one_is_none(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config.toml"
    assert read_file(str(path)) is None
    path.write_bytes(WHOLE)
    assert read_file(str(path)) == WHOLE


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(tmp_path: pathlib.Path, mode: int) -> None:
    path = tmp_path / "config.toml"
    path.touch()
    path.chmod(mode)
    with pytest.raises(BadConfig, match="writable only by root"):
        read_file(str(path))


@pytest.mark.root("only root can give a file away")
def test_a_file_of_somebody_else_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config.toml"
    path.touch()
    os.chown(path, 65534, 65534)
    with pytest.raises(BadConfig, match="must belong to root"):
        read_file(str(path))


def test_what_is_no_file_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, words in (("fifo", "no regular file"), (".", "directory"), ("x" * 300, "too long")):
        with pytest.raises(BadConfig, match=words) as caught:
            read_file(str(tmp_path / path))
        assert str(caught.value).startswith(str(tmp_path))


def test_a_huge_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "huge").write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(BadConfig, match="larger than 1 MiB"):
        read_file(str(tmp_path / "huge"))


def test_a_value_says_where_it_is_from() -> None:
    assert parse(b"\nstate = '/s'", "/etc/x")["state",] == Given("/s", "/etc/x:2")

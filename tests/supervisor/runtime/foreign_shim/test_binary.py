import json
import os
import pathlib

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from protos.containerd.bootstrap_pb2 import BootstrapParams, BootstrapResult
from protos.containerd.runc_pb2 import Options
from protos.containerd.task_pb2 import DeleteResponse
from supervisor.model.errors import BadRequest, RuntimeMissing, ShimFailed
from supervisor.runtime.foreign_shim import binary
from supervisor.runtime.foreign_shim.binary import Address, Deleted, Era, Shim

SHIM = Shim("/usr/bin/containerd-shim-runc-v2", "ns", "c1", "/run/exitd/x.sock", "/run/exitd/events")
PLACE = "unix:///run/containerd/s/0005ac"
OPTIONS = Any(type_url="containerd.runc.v1.Options", value=Options(systemd_cgroup=True).SerializeToString())
# As containerd's own shim of 1.6 prints it, and kata's in Go.
GO = "containerd-shim-runc-v2:\n  Version:  {}\n  Revision: 1.6.20~ds1-1+deb12u1\n  Go version: go1.19.8\n\n"
KATA = 'Kata Containers containerd shim (Golang): id: "io.containerd.kata.v2", version: 3.4.0, commit: 0a1b\n'


# -- names


@pytest.mark.parametrize(
    "runtime, program",
    [
        ("io.containerd.runc.v2", "containerd-shim-runc-v2"),
        ("io.containerd.kata-qemu.v2", "containerd-shim-kata-qemu-v2"),
        ("io.containerd.exitd.v2", "containerd-shim-exitd-v2"),
        ("org.example.deep.down.mine.v1", "containerd-shim-mine-v1"),
        ("mine.v1", "containerd-shim-mine-v1"),
    ],
)
def test_the_last_two_parts_of_a_runtimes_name_are_its_programs(runtime: str, program: str) -> None:
    assert binary.program_name(runtime) == program


@pytest.mark.parametrize(
    "runtime", ["", "runc", ".", "..", "io.containerd.runc.", ".v2", "a./etc.v2", "a.b c.v2", "-.v"]
)
def test_what_names_no_program_is_refused(runtime: str) -> None:
    with pytest.raises(BadRequest, match=r"named like io\.containerd\.runc\.v2"):
        binary.program_name(runtime)


@given(st.text())
def test_no_name_leads_out_of_the_directories_on_path(runtime: str) -> None:
    try:
        name = binary.program_name(runtime)
    except BadRequest:
        return
    assert name.startswith("containerd-shim-") and "/" not in name and "\0" not in name


def test_a_shim_is_found_along_path(tmp_path: pathlib.Path) -> None:
    (tmp_path / "b").mkdir()
    program = tmp_path / "b" / "containerd-shim-mine-v1"
    program.touch(mode=0o755)
    assert binary.find("io.containerd.mine.v1", f"{tmp_path}:{tmp_path}/b") == str(program)


def test_of_one_that_is_missing_it_is_said_which_program_was_looked_for_and_where(tmp_path: pathlib.Path) -> None:
    (tmp_path / "containerd-shim-mine-v1").touch(mode=0o644)
    with pytest.raises(RuntimeMissing) as caught:
        binary.find("io.containerd.mine.v1", f"{tmp_path}:/none")
    for word in ("io.containerd.mine.v1", "containerd-shim-mine-v1", f"{tmp_path}:/none", "install it"):
        assert word in str(caught.value)


def test_a_shim_in_the_working_directory_is_nobodys(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "containerd-shim-mine-v1").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    for path in ("", ".", ":", "b:."):
        with pytest.raises(RuntimeMissing):
            binary.find("io.containerd.mine.v1", path)


# -- what start prints


FORMS = {
    "the address alone": (PLACE.encode(), 2),
    "with a newline": (f"{PLACE}\n".encode(), 2),
    "JSON of version 2": (json.dumps({"version": 2, "address": PLACE, "protocol": "ttrpc"}).encode(), 2),
    "JSON of version 3": (json.dumps({"version": 3, "address": PLACE, "protocol": "ttrpc"}).encode() + b"\n", 3),
    "JSON with more": (json.dumps({"version": 3, "address": PLACE, "protocol": "TTRPC", "x": 1}).encode(), 3),
    "a message": (BootstrapResult(version=3, address=PLACE, protocol="ttrpc").SerializeToString(), 3),
    "a message of version 2": (BootstrapResult(version=2, address=PLACE, protocol="ttrpc").SerializeToString(), 2),
    "a message with a newline": (
        BootstrapResult(version=2, address=PLACE, protocol="ttrpc").SerializeToString() + b"\n",
        2,
    ),
    "a message with more": (
        BootstrapResult(version=3, address=PLACE, protocol="ttrpc", metadata={"a": "b"}).SerializeToString(),
        3,
    ),
}


@pytest.mark.parametrize("printed, version", FORMS.values(), ids=FORMS)
def test_every_form_of_what_start_prints_is_read(printed: bytes, version: int) -> None:
    assert binary.read_start_output(printed) == Address(PLACE, version, "ttrpc")


def test_addresses_of_other_kinds_are_read_and_left_to_whoever_connects() -> None:
    for place in ("vsock://3:1024", "hvsock:///run/vm.sock:1024", "unix://@/containerd-shim/1.sock"):
        assert binary.read_start_output(place.encode()) == Address(place, 2)


def test_a_path_without_a_scheme_is_the_name_of_an_abstract_socket() -> None:
    assert binary.read_start_output(b"/containerd-shim/ns/c1/shim.sock\n").address == "/containerd-shim/ns/c1/shim.sock"


BAD = {
    "nothing": (b"", "has printed nothing"),
    "blanks": (b" \n\t ", "has printed nothing"),
    "noise before it": (f"level=warning msg=old\n{PLACE}".encode(), "no address"),
    "noise after it": (f"{PLACE}\nlevel=warning".encode(), "names nothing"),
    "noise on its line": (f"{PLACE} (started)".encode(), "names nothing"),
    "no path": (b"unix://", "names nothing"),
    "a path from nowhere": (b"unix://run/x.sock", "names nothing"),
    "another scheme": (b"tcp://127.0.0.1:1", "no address of a kind"),
    "a word": (b"started", "no address"),
    "bytes": (b"\xff\xfe\x00", "no address"),
    "broken JSON": (b'{"version": 2', "JSON that cannot be read"),
    "JSON without a protocol": (json.dumps({"version": 2, "address": PLACE}).encode(), "JSON without"),
    "JSON with a flag for its version": (
        json.dumps({"version": True, "address": PLACE, "protocol": "ttrpc"}).encode(),
        "JSON without",
    ),
    "JSON of version 4": (json.dumps({"version": 4, "address": PLACE, "protocol": "ttrpc"}).encode(), "version 4"),
    "JSON of version 1": (json.dumps({"version": 1, "address": PLACE, "protocol": "ttrpc"}).encode(), "version 1"),
    "another protocol": (json.dumps({"version": 3, "address": PLACE, "protocol": "grpc"}).encode(), "'grpc'"),
    "a message of another protocol": (
        BootstrapResult(version=3, address=PLACE, protocol="grpc").SerializeToString(),
        "'grpc'",
    ),
    "a message of version 9": (BootstrapResult(version=9, address=PLACE, protocol="ttrpc").SerializeToString(), "9"),
    "half a message": (FORMS["a message"][0][:10], "message that cannot be read"),
}


@pytest.mark.parametrize("printed, why", BAD.values(), ids=BAD)
def test_what_is_no_address_is_an_error_that_shows_it(printed: bytes, why: str) -> None:
    with pytest.raises(ShimFailed, match=why) as caught:
        binary.read_start_output(printed)
    beginning = printed.decode(errors="backslashreplace").strip()[:6]
    assert repr(beginning)[1:-1] in str(caught.value)


def test_a_flood_is_not_shown_whole() -> None:
    with pytest.raises(ShimFailed) as caught:
        binary.read_start_output(b"x" * 60_000)
    assert len(str(caught.value)) < 1000


def test_what_is_too_long_is_shown_from_both_ends() -> None:
    """The reason of a failure stands at the end of what a program prints."""
    said = binary.shown(b"first" + b"x" * 60_000 + b"the reason\n")
    assert said.startswith("first") and said.endswith("the reason") and len(said) < 600


@given(st.binary() | st.binary().map(lambda tail: b"\x08\x03" + tail) | st.text().map(lambda t: ("{" + t).encode()))
def test_whatever_is_printed_is_an_address_or_a_named_error(printed: bytes) -> None:
    try:
        found = binary.read_start_output(printed)
    except ShimFailed:
        return
    assert found.version in (2, 3) and found.protocol == "ttrpc" and found.address.isprintable()


# -- what start is given


@pytest.mark.parametrize(
    "version, era",
    [
        *(("1.6.20~ds1", Era.ANY), ("1.7.27", Era.ANY), ("v2.0.5", Era.ANY), ("2.2.9+unknown", Era.ANY)),
        *(("2.3.0", Era.BOOTSTRAP), ("v2.3.0-rc.1", Era.BOOTSTRAP), ("2.10.0", Era.BOOTSTRAP), ("3.0", Era.BOOTSTRAP)),
        *(("", Era.UNKNOWN), ("unknown", Era.UNKNOWN)),
    ],
)
def test_a_shim_on_containerds_frame_reports_its_era_by_its_version(version: str, era: Era) -> None:
    assert binary.era_of(GO.format(version)) is era


def test_the_version_of_another_product_reports_nothing() -> None:
    assert binary.era_of(KATA) is binary.era_of("") is binary.era_of("exitd 2.4.0\n") is Era.UNKNOWN


def test_an_older_shim_is_given_the_options_alone() -> None:
    for era in (Era.ANY, Era.UNKNOWN):
        assert binary.start_input(SHIM, era, b"") == b""
        assert binary.start_input(SHIM, era, OPTIONS.SerializeToString()) == OPTIONS.SerializeToString()


def test_a_newer_one_is_given_a_message_around_them() -> None:
    params = BootstrapParams.FromString(binary.start_input(SHIM, Era.BOOTSTRAP, OPTIONS.SerializeToString()))
    assert (params.instance_id, params.namespace) == ("c1", "ns")
    assert (params.containerd_ttrpc_address, params.containerd_grpc_address) == (SHIM.ttrpc_address, SHIM.address)
    assert [each.value for each in params.extensions] == [OPTIONS]
    assert not BootstrapParams.FromString(binary.start_input(SHIM, Era.BOOTSTRAP, b"")).extensions


def test_options_that_cannot_be_read_are_the_callers() -> None:
    with pytest.raises(BadRequest, match="options of c1"):
        binary.start_input(SHIM, Era.BOOTSTRAP, b"\xff")


def test_the_words_of_start_and_delete_are_containerds() -> None:
    common = [SHIM.binary, "-namespace", "ns", "-address", SHIM.address, "-publish-binary", "/bin/false", "-id", "c1"]
    assert binary.start_words(SHIM) == [*common, "start"]
    assert binary.delete_words(SHIM, "/b/c1") == [*common, "-bundle", "/b/c1", "delete"]
    loud = Shim(SHIM.binary, "ns", "c1", SHIM.address, SHIM.ttrpc_address, debug=True)
    assert binary.start_words(loud) == [*common, "-debug", "start"]
    assert binary.delete_words(loud, "/b/c1") == [*common, "-bundle", "/b/c1", "-debug", "delete"]


def test_a_shim_gets_our_environment_without_what_is_meant_for_us_alone() -> None:
    ours = {"A": "b", "PATH": "/x", "NOTIFY_SOCKET": "/n", "LISTEN_FDS": "1", "LISTEN_PID": "2", "LISTEN_FDNAMES": "a"}
    made = binary.environment(SHIM, ours)
    assert made.pop("PATH").split(":")[0] == "/x"
    assert made == {
        "A": "b",
        "TTRPC_ADDRESS": SHIM.ttrpc_address,
        "GRPC_ADDRESS": SHIM.address,
        "NAMESPACE": "ns",
        "MAX_SHIM_VERSION": "2",
        "GOMAXPROCS": "2",
    }


def test_its_runtime_is_found_where_ours_would_be() -> None:
    assert "/usr/sbin" in binary.environment(SHIM, {})["PATH"].split(":")
    assert os.pathsep not in binary.environment(SHIM, {})["PATH"][:1]


# -- what delete prints


def reply(**fields: object) -> bytes:
    return DeleteResponse(**fields).SerializeToString()  # type: ignore[arg-type]


def test_what_delete_prints_is_read() -> None:
    at = Timestamp(seconds=5, nanos=7)
    assert binary.read_delete_output(reply(pid=3, exit_status=137, exited_at=at)) == Deleted(3, 137, 5_000_000_007)
    assert binary.read_delete_output(reply(exit_status=137, exited_at=at)) == Deleted(0, 137, 5_000_000_007)
    assert binary.read_delete_output(reply(pid=2**32 - 1, exited_at=at)) == Deleted(2**32 - 1, 0, 5_000_000_007)


def test_what_reports_no_end_is_none_and_no_exit_with_0() -> None:
    never = Timestamp(seconds=-62135596800)
    for printed in (b"", reply(pid=3, exit_status=137), reply(exited_at=never), b"137", b"level=warning", b"\xff"):
        assert binary.read_delete_output(printed) is None


@given(st.binary() | st.text().map(str.encode))
def test_whatever_delete_prints_is_an_end_with_its_time_or_none(printed: bytes) -> None:
    found = binary.read_delete_output(printed)
    assert found is None or found.exited_at_ns > 0

"""What a client asks of the runtime is understood, whichever message it comes in; the unknown is noted, not refused."""

import json

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

from protos.containerd import linux_runc_pb2 as older
from protos.containerd import runc_pb2 as runc
from protos.containerd import runtimeoptions_pb2 as custom
from supervisor.containerd import options
from supervisor.containerd.options import TaskOptions
from supervisor.model.errors import BadRequest


def wrapped(message: Message, prefix: str = "") -> Any:
    return Any(type_url=prefix + message.DESCRIPTOR.full_name, value=message.SerializeToString())


def toml(text: str, path: str = "") -> Any:
    return wrapped(custom.Options(config_path=path, config_body=text.encode()))


@pytest.mark.parametrize("given", [None, Any()])
def test_no_options_mean_the_defaults(given: Any | None) -> None:
    assert options.parse(given) == TaskOptions()


@pytest.mark.parametrize("prefix", ["", "type.googleapis.com/", "/"])
def test_runcs_own_options_are_taken_whatever_stands_before_the_name(prefix: str) -> None:
    asked = runc.Options(binary_name="crun", systemd_cgroup=True, io_uid=7, io_gid=8, no_pivot_root=True, root="/r")
    assert options.parse(wrapped(asked, prefix)) == TaskOptions(
        binary="crun", systemd_cgroup=True, io_uid=7, io_gid=8, no_pivot_root=True, root="/r"
    )


def test_every_field_of_runcs_options_but_the_sandboxs_is_taken() -> None:
    asked = runc.Options()
    for field in asked.DESCRIPTOR.fields:
        kind = type(getattr(asked, field.name))
        setattr(asked, field.name, {bool: True, int: 5, str: "x"}[kind])
    found = options.parse(wrapped(asked))
    left = {name for name in TaskOptions.__match_args__ if not getattr(found, name)}
    assert left == {"config_path", "notes"}


def test_what_concerns_a_create_becomes_arguments_of_it() -> None:
    assert TaskOptions(no_pivot_root=True, no_new_keyring=True).create_words == ("--no-pivot", "--no-new-keyring")
    assert TaskOptions(systemd_cgroup=True).create_words == ()


def test_the_older_forms_of_runcs_options_are_taken() -> None:
    first = older.RuncOptions(runtime="/usr/bin/crun", runtime_root="/r", criu_path="/criu", systemd_cgroup=True)
    assert options.parse(wrapped(first)) == TaskOptions("/usr/bin/crun", "/r", True, criu_path="/criu")
    second = older.CreateOptions(no_pivot_root=True, no_new_keyring=True, shim_cgroup="/s", io_uid=1, io_gid=2)
    assert options.parse(wrapped(second)) == TaskOptions(
        no_pivot_root=True, no_new_keyring=True, shim_cgroup="/s", io_uid=1, io_gid=2
    )


def test_the_section_that_cri_sends_as_toml_is_taken() -> None:
    text = 'BinaryName = "/usr/bin/crun"\nSystemdCgroup = true\nIoUid = 1000\nRoot = ""\nno_pivot_root = true\n'
    assert options.parse(toml(text)) == TaskOptions(
        binary="/usr/bin/crun", systemd_cgroup=True, io_uid=1000, no_pivot_root=True
    )


def test_a_path_to_a_configuration_is_left_to_whoever_may_read_files() -> None:
    found = options.parse(toml("", "/etc/exitd/runtime.toml"))
    assert found == TaskOptions(config_path="/etc/exitd/runtime.toml")
    assert options.with_config(found, b'BinaryName = "crun"', found.config_path).binary == "crun"


def test_a_key_and_a_type_that_mean_nothing_are_noted() -> None:
    assert options.parse(toml("TaskApiVersion = 3")) == TaskOptions(
        notes=("option TaskApiVersion of config_body means nothing here",)
    )
    found = options.parse(Any(type_url="containerd.runhcs.v1.Options", value=b"\xff\xff"))
    assert found == TaskOptions(notes=("options of the type containerd.runhcs.v1.Options mean nothing here",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("BinaryName = ", "not TOML"),
        ("SystemdCgroup = 1", "SystemdCgroup"),
        ("IoUid = true", "IoUid"),
        ("IoUid = -1", "IoUid"),
        ("BinaryName = ['crun']", "BinaryName"),
    ],
)
def test_toml_that_cannot_be_right_is_refused_by_its_key(text: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        options.parse(toml(text))


@pytest.mark.parametrize("name", ["containerd.runc.v1.Options", "runtimeoptions.v1.Options"])
def test_a_known_message_that_cannot_be_read_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match=name):
        options.parse(Any(type_url=name, value=b"\xff"))


def test_a_document_of_runtime_spec_is_read_by_its_whole_url() -> None:
    given = Any(type_url=options.JSON_TYPES + "Process", value=json.dumps({"args": ["sh"]}).encode())
    assert options.document(given, "Process") == {"args": ["sh"]}
    for wrong in (None, Any(type_url="Process", value=given.value), Any(type_url=given.type_url, value=b"[]")):
        with pytest.raises(BadRequest):
            options.document(wrong, "Process")
    with pytest.raises(BadRequest, match="LinuxResources"):
        options.document(given, "LinuxResources")
    with pytest.raises(BadRequest, match="not JSON"):
        options.document(Any(type_url=given.type_url, value=b"{"), "Process")

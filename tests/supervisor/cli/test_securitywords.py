"""supervisor/cli/securitywords.py: the words of --security-opt."""

import pytest
from click.testing import CliRunner

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.run import run
from supervisor.cli.securitywords import security_options, security_spec
from supervisor.cli.spec import RunOptions, container_spec
from supervisor.model.errors import BadRequest


def test_no_word_asks_for_nothing() -> None:
    assert security_spec(()) is None
    assert not container_spec(RunOptions(rootfs="/", command=("a",)), {}).HasField("security")


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["seccomp=unconfined"], pb.SecuritySpec(seccomp="unconfined")),
        (["seccomp:unconfined"], pb.SecuritySpec(seccomp="unconfined")),
        (["seccomp=unconfined", "seccomp=builtin"], pb.SecuritySpec(seccomp="builtin")),
        (["no-new-privileges"], pb.SecuritySpec(no_new_privileges=True)),
        (["no-new-privileges:true"], pb.SecuritySpec(no_new_privileges=True)),
        (["no-new-privileges=false"], pb.SecuritySpec(no_new_privileges=False)),
        (["apparmor=docker-default"], pb.SecuritySpec(apparmor="docker-default")),
        (["label=type:spc_t"], pb.SecuritySpec(selinux="system_u:system_r:spc_t:s0")),
        (["label=user:u", "label=role:r", "label=level:s0:c1,c2"], pb.SecuritySpec(selinux="u:r:container_t:s0:c1,c2")),
        (["label=type:spc_t", "label=disable", "seccomp=builtin"], pb.SecuritySpec(seccomp="builtin")),
    ],
)
def test_dockers_words_are_understood(words: list[str], asked: pb.SecuritySpec) -> None:
    assert container_spec(RunOptions(rootfs="/", command=("a",), security_opt=tuple(words)), {}).security == asked


@pytest.mark.parametrize(
    "word",
    ["", "seccomp", "seccomp=", "no-new-privileges=maybe", "apparmor=", "label=", "label=type:", "label=x:y", "sec=x"],
)
def test_a_word_that_is_not_known_is_refused_with_those_that_are(word: str) -> None:
    with pytest.raises(BadRequest, match=rf"--security-opt {word}: known are seccomp=FILE"):
        security_spec([word])


def test_the_option_is_in_the_help_of_run() -> None:
    assert "--security-opt" in CliRunner().invoke(run, ["--help"]).output


def test_inspect_shows_them_as_they_are_written() -> None:
    asked = pb.SecuritySpec(seccomp="unconfined", apparmor="p", selinux="u:r:t:s0:c1,c2")
    label = ["label=user:u", "label=role:r", "label=type:t", "label=level:s0:c1,c2"]
    assert security_options(asked) == ["no-new-privileges", "seccomp=unconfined", "apparmor=p", *label]
    assert security_options(pb.SecuritySpec(no_new_privileges=False)) == []

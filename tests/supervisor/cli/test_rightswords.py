"""--cap-add, --cap-drop, --privileged, --ulimit and --pids-limit, from words to a request and back."""

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.rightswords import RightsWords, rights_spec, ulimit_words
from supervisor.cli.shape import container_document
from supervisor.cli.spec import RunOptions, container_spec, run_options
from supervisor.model.errors import BadRequest
from supervisor.model.rights import UNLIMITED


def test_nothing_is_asked_where_nothing_is_said() -> None:
    assert rights_spec(RightsWords()) is None
    assert not container_spec(RunOptions(command=("/", "true")), {}).HasField("rights")


def test_every_word_arrives() -> None:
    options = {
        "command": ("/", "true"),
        "privileged": True,
        "cap_add": ("NET_ADMIN,sys_time", "ALL"),
        "cap_drop": ("MKNOD",),
        "ulimit": ("nofile=10:20", "core=-1", "nproc=5", "cpu=1:unlimited"),
        "pids_limit": -1,
        "group_add": ("7", "33"),
    }
    assert container_spec(run_options(options), {}).rights == pb.RightsSpec(
        privileged=True,
        cap_add=["NET_ADMIN", "sys_time", "ALL"],
        cap_drop=["MKNOD"],
        ulimits=[
            pb.Ulimit(name="nofile", soft=10, hard=20),
            pb.Ulimit(name="core", soft=UNLIMITED, hard=UNLIMITED),
            pb.Ulimit(name="nproc", soft=5, hard=5),
            pb.Ulimit(name="cpu", soft=1, hard=UNLIMITED),
        ],
        pids_limit=-1,
        groups=[7, 33],
    )


@pytest.mark.parametrize("word", ["", "wheel", "-1", "4294967295"])
def test_a_group_is_a_number(word: str) -> None:
    with pytest.raises(BadRequest, match=f"--group-add {word}: write the group's number"):
        rights_spec(RightsWords(group_add=(word,)))


@pytest.mark.parametrize("word", ["nofile", "nofile=", "nofile=x", "nofile=1:", "nofile=1:2:3", "files=1", "=1"])
def test_a_limit_that_is_none_is_refused_with_the_way_to_write_it(word: str) -> None:
    with pytest.raises(BadRequest, match=f"--ulimit {word}"):
        rights_spec(RightsWords(ulimit=(word,)))


def test_inspect_shows_them_as_docker_does() -> None:
    limits = [pb.Ulimit(name="core", soft=0, hard=UNLIMITED)]
    rights = pb.RightsSpec(privileged=True, cap_add=["CAP_BPF"], cap_drop=["ALL"], ulimits=limits, pids_limit=9)
    shown = container_document(pb.Container(spec=pb.ContainerSpec(rights=rights)))["HostConfig"]
    assert isinstance(shown, dict)
    expected = {"Privileged": True, "CapAdd": ["CAP_BPF"], "CapDrop": ["ALL"], "PidsLimit": 9}
    assert {key: shown[key] for key in expected} == expected
    assert shown["Ulimits"] == ulimit_words(limits) == [{"Name": "core", "Soft": 0, "Hard": -1}]

"""Rights and limits in requests: checked, stored, shown."""

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.requests import spec_of
from supervisor.api.rights import rights_message, rights_of
from supervisor.model.errors import BadRequest
from supervisor.model.rights import DEFAULT_PIDS, UNLIMITED, Rights, Ulimit

ALL = Rights(
    privileged=True,
    cap_add=("CAP_NET_ADMIN",),
    cap_drop=("ALL",),
    ulimits=(Ulimit("core", 0, UNLIMITED),),
    pids_limit=7,
    groups=(4, 5),
    not_root=True,
    image_groups="never",
)


def test_what_was_asked_comes_back_as_it_is() -> None:
    for rights in (ALL, Rights(), Rights(pids_limit=DEFAULT_PIDS)):
        assert rights_of(rights_message(rights), of_bundle=False) == rights


def test_processes_have_a_limit_unless_none_is_asked_for_or_a_bundle_says() -> None:
    assert rights_of(pb.RightsSpec(), of_bundle=False).pids_limit == 2048
    assert [rights_of(pb.RightsSpec(pids_limit=n), of_bundle=False).pids_limit for n in (-1, 0, 9)] == [0, 0, 9]
    assert rights_of(pb.RightsSpec(), of_bundle=True) == Rights()
    assert rights_of(pb.RightsSpec(pids_limit=9), of_bundle=True).pids_limit == 9


def test_names_are_made_the_kernels_and_the_later_limit_counts() -> None:
    two = [pb.Ulimit(name="nofile", soft=1, hard=2), pb.Ulimit(name="nofile", soft=3, hard=4)]
    found = rights_of(pb.RightsSpec(cap_add=["net_admin", "CAP_NET_ADMIN"], ulimits=two), of_bundle=False)
    assert (found.cap_add, found.ulimits) == (("CAP_NET_ADMIN",), (Ulimit("nofile", 3, 4),))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (pb.RightsSpec(cap_add=["ROOT"]), r"rights.cap_add 'ROOT': allowed is ALL or a capability"),
        (pb.RightsSpec(cap_drop=[""]), r"rights.cap_drop ''"),
        (pb.RightsSpec(ulimits=[pb.Ulimit(name="files")]), r"rights.ulimits 'files': allowed is as, core"),
        (pb.RightsSpec(ulimits=[pb.Ulimit(name="core", soft=UNLIMITED, hard=1)]), r"'core=unlimited:1': .*not above"),
        (pb.RightsSpec(pids_limit=1 << 30), r"rights.pids_limit '1073741824'"),
        (pb.RightsSpec(groups=[2**32 - 1]), r"rights.groups"),
        (pb.RightsSpec(image_groups="some"), r"rights.image_groups 'some'"),
    ],
)
def test_what_no_kernel_takes_is_refused_by_name(message: pb.RightsSpec, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        rights_of(message, of_bundle=False)


@pytest.mark.parametrize(
    "message",
    [
        pb.RightsSpec(privileged=True),
        pb.RightsSpec(cap_add=["ALL"]),
        pb.RightsSpec(cap_drop=["ALL"]),
        pb.RightsSpec(groups=[1]),
        pb.RightsSpec(not_root=True),
        pb.RightsSpec(image_groups="always"),
    ],
)
def test_what_a_bundle_says_itself_is_refused_beside_one(message: pb.RightsSpec) -> None:
    with pytest.raises(BadRequest, match="a bundle says that itself"):
        rights_of(message, of_bundle=True)


def test_a_privileged_container_has_no_seccomp_profile_unless_one_is_asked_for() -> None:
    request = pb.ContainerSpec(args=["true"], rootfs="/", rights=pb.RightsSpec(privileged=True))
    assert spec_of(request).security.seccomp == "unconfined"
    request.security.seccomp = "builtin"
    assert spec_of(request).security.seccomp == "builtin"

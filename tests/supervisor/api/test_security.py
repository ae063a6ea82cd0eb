"""supervisor/api/security.py: what holds a container back, over the API."""

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import requests
from supervisor.api.security import security_message, security_of
from supervisor.model.errors import BadRequest
from supervisor.model.values import Security


def test_whoever_says_nothing_gets_the_builtin_profile_and_a_bundle_says_it_by_itself() -> None:
    assert requests.spec_of(pb.ContainerSpec(rootfs="/", args=["a"])).security == Security(seccomp="builtin")
    assert requests.spec_of(pb.ContainerSpec(bundle="/b")).security == Security()
    asked = pb.SecuritySpec(seccomp="builtin")
    assert requests.spec_of(pb.ContainerSpec(bundle="/b", security=asked)).security.seccomp == "builtin"


@pytest.mark.parametrize(
    "security",
    [
        Security("unconfined", no_new_privileges=False, apparmor="docker-default", selinux="u:r:t:s0:c1,c2"),
        Security("builtin", no_new_privileges=True),
        Security("builtin"),
    ],
)
def test_what_was_asked_comes_back_the_same(security: Security) -> None:
    assert security_of(security_message(security), of_bundle=False) == security


@pytest.mark.parametrize(
    ("field", "value"),
    [("seccomp", "confined"), ("apparmor", "two words"), ("apparmor", "x" * 256), ("selinux", "container_t")],
)
def test_what_cannot_be_is_refused_by_the_fields_name(field: str, value: str) -> None:
    with pytest.raises(BadRequest, match=rf"security\.{field}"):
        security_of(pb.SecuritySpec(**{field: value}), of_bundle=False)  # type: ignore[arg-type]

"""supervisor/oci/seccomp.py and confine.py: exitd's own profile, and what a configuration gets of it."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from supervisor.oci import seccomp
from supervisor.oci.confine import confine
from supervisor.oci.seccomp import ALLOWED, DENIED, GATED, Machine, builtin
from supervisor.security import Security

AMD64, ARM64 = Machine("x86_64", (6, 1)), Machine("aarch64", (6, 1))
GATED_CALLS = {(right, name) for right, names in GATED.items() for name in names.split()}


def rules(rights: Iterable[str], machine: Machine = AMD64) -> list[Any]:
    profile: dict[str, Any] = builtin(rights, machine)
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    return list(profile["syscalls"])


def names(rights: Iterable[str], action: str) -> set[str]:
    """Those that are answered in that way whatever their arguments are."""
    return {name for rule in rules(rights) if rule["action"] == action and "args" not in rule for name in rule["names"]}


@pytest.mark.parametrize(("right", "name"), sorted(GATED_CALLS))
def test_a_capability_adds_its_calls_and_without_it_they_are_not_permitted(right: str, name: str) -> None:
    assert name in names([right], seccomp.ALLOW) and name not in names([right], seccomp.ERRNO)
    others = [other for other, call in GATED_CALLS if call != name and (other, name) not in GATED_CALLS]
    assert name in names(others, seccomp.ERRNO) and name not in names(others, seccomp.ALLOW)


def test_no_call_is_in_two_places() -> None:
    gated = {name for _, name in GATED_CALLS}
    arguments = {"clone", "clone3", "personality", "socket"}
    lists = [*ALLOWED.split(), *DENIED.split(), *gated, *arguments]
    assert len(lists) == len(set(lists))


def test_what_the_profile_does_not_know_is_not_there() -> None:
    known = names([], seccomp.ALLOW) | names([], seccomp.ERRNO)
    assert {"clone3", "a_call_of_next_year"}.isdisjoint(known)
    assert {"keyctl", "io_uring_setup", "userfaultfd"} <= names([], seccomp.ERRNO)


def test_every_namespace_flag_of_clone_is_looked_at() -> None:
    clone = [rule for rule in rules([]) if rule["names"] == ["clone"]]
    (allowed,) = (rule["args"][0] for rule in clone if rule["action"] == seccomp.ALLOW)
    refused = [rule["args"][0] for rule in clone if rule["action"] == seccomp.ERRNO]
    assert (allowed["op"], allowed["valueTwo"]) == ("SCMP_CMP_MASKED_EQ", 0)
    assert allowed["value"] == sum(argument["value"] for argument in refused) == 0x7E02_0000
    assert all(argument["value"] == argument["valueTwo"] for argument in refused)
    assert "clone" in names(["CAP_SYS_ADMIN"], seccomp.ALLOW) and "clone3" in names(["CAP_SYS_ADMIN"], seccomp.ALLOW)
    on_s390 = [rule["args"][0]["index"] for rule in rules([], Machine("s390x")) if rule["names"] == ["clone"]]
    assert set(on_s390) == {1}


def matches(argument: dict[str, Any], value: int) -> bool:
    match argument["op"].removeprefix("SCMP_CMP_"):
        case "EQ":
            return bool(value == argument["value"])
        case "LT":
            return bool(value < argument["value"])
        case "GT":
            return bool(value > argument["value"])
    raise AssertionError(argument)


@pytest.mark.parametrize("family", [*range(50), 2**31])
def test_every_socket_family_has_one_answer(family: int) -> None:
    sockets = [rule for rule in rules([]) if rule["names"] == ["socket"]]
    found = [rule["action"] for rule in sockets if matches(rule["args"][0], family)]
    assert found == [seccomp.ERRNO if family in (seccomp.AF_ALG, seccomp.AF_VSOCK) else seccomp.ALLOW]


def test_the_filter_is_for_the_machines_own_calls() -> None:
    assert builtin([], AMD64)["architectures"] == ["SCMP_ARCH_X86_64"]
    assert builtin([], ARM64)["architectures"] == ["SCMP_ARCH_AARCH64"]
    assert "architectures" not in builtin([], Machine("alpha"))


CONFIG: dict[str, object] = {
    "process": {"capabilities": {"bounding": ["CAP_SYS_TIME"]}},
    "linux": {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}, "namespaces": []},
}


def confined(word: str, document: dict[str, object] = CONFIG) -> Any:
    linux: Any = confine(document, Security(seccomp=word), AMD64)["linux"]
    assert linux["namespaces"] == []
    return linux.get("seccomp")


def test_a_configuration_gets_what_was_asked_for_its_own_capabilities() -> None:
    assert confined("") == {"defaultAction": "SCMP_ACT_ALLOW"}
    assert confined("unconfined") is None
    assert confined("builtin") == builtin(["CAP_SYS_TIME"], AMD64)
    assert confined("builtin", {**CONFIG, "process": {}}) == builtin([], AMD64)
    rule = {"names": ["a"], "action": "SCMP_ACT_KILL", "includes": {"caps": ["CAP_BPF"]}}
    asked = json.dumps({"defaultAction": "SCMP_ACT_LOG", "syscalls": [rule]})
    assert confined(asked) == {"defaultAction": "SCMP_ACT_LOG", "syscalls": []}
    assert CONFIG["linux"] == {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}, "namespaces": []}

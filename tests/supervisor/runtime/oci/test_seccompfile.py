"""supervisor/runtime/oci/seccompfile.py: profiles in docker's format, from anybody."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.errors import BadRequest
from supervisor.runtime.oci import seccompfile
from supervisor.runtime.oci.seccomp import SeccompMachine
from supervisor.runtime.oci.seccompfile import applied, compact, parse

AMD64, ARM64 = SeccompMachine("x86_64", (4, 19)), SeccompMachine("aarch64", (6, 1))
WHOLE: dict[str, Any] = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "defaultErrnoRet": 1,
    "archMap": [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
        {"architecture": "SCMP_ARCH_AARCH64"},
    ],
    "flags": ["SECCOMP_FILTER_FLAG_LOG"],
    "syscalls": [
        {"names": ["read", "write"], "action": "SCMP_ACT_ALLOW", "comment": "é", "includes": {}, "args": None},
        {
            "name": "personality",
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": 95,
            "args": [{"index": 0, "value": 2**64 - 1, "valueTwo": 0, "op": "SCMP_CMP_EQ"}],
        },
        {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_BPF", "CAP_SYS_ADMIN"]}},
        {"names": ["a"], "action": "SCMP_ACT_ALLOW", "excludes": {"caps": ["CAP_BPF"]}},
        {"names": ["b"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["amd64", "x32"]}},
        {"names": ["c"], "action": "SCMP_ACT_ALLOW", "excludes": {"arches": ["amd64"]}},
        {"names": ["d"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "4.20"}},
        {"names": ["e"], "action": "SCMP_ACT_ALLOW", "excludes": {"minKernel": "4.20"}},
    ],
}


def names(rights: list[str], machine: SeccompMachine) -> str:
    filter_: Any = applied(parse(json.dumps(WHOLE)), rights, machine)
    return " ".join(name for rule in filter_["syscalls"] for name in rule["names"])


def test_conditions_are_those_of_capabilities_architecture_and_kernel() -> None:
    assert names([], AMD64) == "read write personality a b e"
    assert names(["CAP_BPF"], AMD64) == "read write personality b e"
    assert names(["CAP_BPF", "CAP_SYS_ADMIN"], ARM64) == "read write personality bpf c d"


def test_the_runtime_gets_its_own_words_alone() -> None:
    filter_: Any = applied(parse(json.dumps(WHOLE)), [], AMD64)
    assert filter_["architectures"] == ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]
    assert (filter_["defaultErrnoRet"], filter_["flags"]) == (1, ["SECCOMP_FILTER_FLAG_LOG"])
    assert filter_["syscalls"][0] == {"names": ["read", "write"], "action": "SCMP_ACT_ALLOW"}
    argument = WHOLE["syscalls"][1]["args"]
    assert filter_["syscalls"][1] == {
        "names": ["personality"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95, "args": argument,
    }  # fmt: skip
    assert "architectures" not in applied(parse('{"defaultAction": "SCMP_ACT_ALLOW"}'), [], AMD64)
    assert applied(parse('{"defaultAction": "SCMP_ACT_LOG", "architectures": ["SCMP_ARCH_ARM"]}'), [], AMD64) == {
        "defaultAction": "SCMP_ACT_LOG", "architectures": ["SCMP_ARCH_ARM"], "syscalls": [],
    }  # fmt: skip


def test_what_is_stored_is_ascii_shorter_and_means_the_same() -> None:
    text = compact(parse(json.dumps(WHOLE)))
    assert text.isascii() and "comment" not in text and len(text) < len(json.dumps(WHOLE))
    assert applied(parse(text), [], AMD64) == applied(parse(json.dumps(WHOLE)), [], AMD64)
    assert compact(parse(text)) == text


def entry(**fields: object) -> dict[str, object]:
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["a"], "action": "SCMP_ACT_ALLOW", **fields}]}


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ([], "the whole: must be an object"),
        ({}, "the whole: defaultAction is missing"),
        ({"defaultAction": "ALLOW"}, "defaultAction: 'ALLOW' is none of"),
        ({"defaultAction": "SCMP_ACT_NOTIFY"}, "is none of"),
        ({**entry(), "listenerPath": "/x"}, "'listenerPath' is not known here"),
        ({**entry(), "defaultErrnoRet": 4096}, "defaultErrnoRet: must be a whole number, 0 to 4095"),
        ({**entry(), "architectures": ["x86"]}, r"architectures\[0\]"),
        ({**entry(), "architectures": "x86"}, "architectures: must be a list"),
        ({**entry(), "flags": ["SECCOMP_FILTER_FLAG_NEW_LISTENER"]}, r"flags\[0\]"),
        ({**WHOLE, "architectures": ["SCMP_ARCH_ARM"]}, "archMap: there are architectures too"),
        ({**entry(), "archMap": [{}]}, r"archMap\[0\]: architecture is missing"),
        ({**entry(), "syscalls": [5]}, r"syscalls\[0\]: must be an object"),
        (entry(names=[]), "either names or name"),
        (entry(name="b"), "either names or name"),
        (entry(names=["A b"]), r"syscalls\[0\]\.names\[0\]"),
        (entry(names=["a"] * 8193), "more than 8192 names"),
        (entry(action="SCMP_ACT_TRACE_ME"), r"syscalls\[0\]\.action"),
        (entry(errnoRet=-1), r"syscalls\[0\]\.errnoRet"),
        (entry(errnoRet=True), r"syscalls\[0\]\.errnoRet"),
        (entry(args=[{"index": 6, "op": "SCMP_CMP_EQ"}]), r"args\[0\]\.index"),
        (entry(args=[{"index": 0, "op": "SCMP_CMP_EQ", "value": 2**64}]), r"args\[0\]\.value"),
        (entry(args=[{"index": 0, "op": "SCMP_CMP_EQ", "value": 1.5}]), r"args\[0\]\.value"),
        (entry(args=[{"index": 0, "op": "EQ"}]), r"args\[0\]\.op"),
        (entry(args=[{"index": 0}]), r"args\[0\]: op is missing"),
        (entry(includes={"cap": ["CAP_BPF"]}), r"includes: 'cap' is not known here"),
        (entry(includes={"caps": ["BPF"]}), r"includes\.caps\[0\]"),
        (entry(excludes={"minKernel": "six"}), r"excludes\.minKernel"),
        (entry(includes={"minKernel": "٤.٨"}), r"includes\.minKernel"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_file_and_place(document: object, place: str) -> None:
    with pytest.raises(BadRequest, match=rf"^profile\.json: .*{place}"):
        parse(json.dumps(document), "profile.json")


@pytest.mark.parametrize(
    "word", ["ALLOW", "ERRNO", "KILL", "KILL_PROCESS", "KILL_THREAD", "LOG", "TRACE", "TRAP"]
)  # fmt: skip
def test_every_action_that_needs_no_listener_is_taken(word: str) -> None:
    """seccomp_rule_add(3) has these; SCMP_ACT_NOTIFY would wait for a process that nobody starts."""
    action = f"SCMP_ACT_{word}"
    filter_ = applied(
        parse(json.dumps({"defaultAction": action, "syscalls": [{"names": ["a"], "action": action}]})), [], AMD64
    )
    assert (filter_["defaultAction"], filter_["syscalls"]) == (action, [{"names": ["a"], "action": action}])


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "9" * 5000, '{"defaultAction": NaN}', '"\ud800"', "x" * 300_000]
)
def test_what_is_no_json_or_too_much_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"^p"):
        parse(text, "p")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["SCMP_ACT_ALLOW", "a"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*WHOLE, *WHOLE["syscalls"][1], "caps"]), inner),
)


@given(JSON)
def test_whatever_it_is_it_is_applied_or_refused(document: object) -> None:
    try:
        profile = parse(json.dumps(document))
    except BadRequest:
        return
    applied(parse(compact(profile)), [], AMD64)
    assert len(compact(profile)) <= seccompfile.MOST_BYTES

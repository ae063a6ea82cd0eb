"""Who is a sandbox and who a member, in every family's words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model import pods
from supervisor.model.errors import BadRequest
from supervisor.model.pods import FAMILIES, Family, PodPlace, Role
from supervisor.model.values import Phase

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.type_key)
POD = "4f5e" * 16


def member(family: Family, sandbox: str = POD) -> dict[str, str]:
    return {family.type_key: "container", family.id_key: sandbox}


@each_family
def test_each_family_knows_sandboxes_and_members(family: Family) -> None:
    assert pods.place({family.type_key: family.sandbox_word}) == PodPlace(Role.SANDBOX)
    assert pods.place(member(family)) == PodPlace(Role.MEMBER, POD)


def test_without_annotations_a_container_is_its_own_sandbox() -> None:
    assert pods.place({"com.example/other": "x"}) == PodPlace(Role.SINGLE)


def test_families_that_agree_are_one_word() -> None:
    everybody = {key: value for family in FAMILIES for key, value in member(family).items()}
    assert pods.place(everybody) == PodPlace(Role.MEMBER, POD)


@pytest.mark.parametrize("first", FAMILIES, ids=lambda family: family.type_key)
@pytest.mark.parametrize("second", FAMILIES, ids=lambda family: family.id_key)
def test_families_that_contradict_each_other_are_refused_by_their_keys(first: Family, second: Family) -> None:
    if first is second:
        return
    for other in ({second.type_key: second.sandbox_word}, member(second, "another")):
        with pytest.raises(BadRequest) as refused:
            pods.place(member(first) | other)
        assert first.type_key in str(refused.value) and second.type_key in str(refused.value)


@each_family
@pytest.mark.parametrize("kind", ["", "pod", "Container", "sandboxes", "container "])
def test_an_unknown_kind_is_refused(family: Family, kind: str) -> None:
    with pytest.raises(BadRequest, match=family.type_key):
        pods.place({family.type_key: kind, family.id_key: POD})


@each_family
def test_a_member_of_nothing_and_a_sandbox_id_alone_are_refused(family: Family) -> None:
    for half in ({family.type_key: "container"}, {family.id_key: POD}):
        with pytest.raises(BadRequest, match=family.id_key):
            pods.place(half)


@given(
    st.dictionaries(
        st.sampled_from(sorted(pods.FAMILY_KEYS)), st.sampled_from(["container", "sandbox", "podsandbox", POD])
    )
)
def test_whatever_the_annotations_say_it_is_a_place_or_a_refusal(annotations: dict[str, str]) -> None:
    try:
        found = pods.place(annotations)
    except BadRequest:
        return
    assert bool(found.sandbox) == (found.role is Role.MEMBER)
    assert found.role is not Role.SINGLE or not annotations.keys() & {family.type_key for family in FAMILIES}


def test_only_what_the_allow_list_matches_reaches_the_runtime() -> None:
    annotations = {"com.a.one": "1", "com.b": "2", **member(FAMILIES[1])}
    assert pods.shown(annotations, ["com.a.*"]) == {"com.a.one": "1", **member(FAMILIES[1])}
    assert pods.shown(annotations, []) == member(FAMILIES[1])
    assert pods.shown(annotations, ["*"]) == annotations


@pytest.mark.parametrize("phase", list(Phase))
def test_a_pod_is_ready_while_its_pause_runs(phase: Phase) -> None:
    assert (pods.state(phase) is pods.PodState.READY) == (phase in (Phase.RUNNING, Phase.PAUSED))

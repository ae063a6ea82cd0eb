"""What is made of a row that cannot be decoded: an ordinary container, that acts on no guess."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.api import replies
from supervisor.model import lifecycle
from supervisor.model.errors import WrongState
from supervisor.model.execs import Exec, ExecSpec
from supervisor.model.taskfacts import Task
from supervisor.model.values import (
    BootTime,
    By,
    Container,
    Exit,
    Exited,
    Oom,
    Phase,
    Policy,
    Process,
    Reason,
    RestartPolicy,
    RunKey,
    Source,
    Spec,
)
from supervisor.model.views import View
from supervisor.store import codec, salvage
from supervisor.store.codec import Damaged
from supervisor.store.salvage import Remains
from tests.supervisor.stored import exec_of

INIT = Process(77, 7)
ENDED = Exit(
    RunKey("c1", 3), "web", "default", Exited(43), Source.KEEPER, Reason.SELF, By(), Oom(), 7, None, None, "ended"
)
WEB = Container("c1", Spec(name="web", args=("sh",), image_id="sha256:1"), Phase.RUNNING, 4, 1, boot_id="boot")
ALWAYS = replace(WEB, spec=replace(WEB.spec, restart=RestartPolicy(Policy.ALWAYS), auto_remove=True))
NOW = lifecycle.Moment(5, BootTime("boot", 5))


def row_of(container: Container, **changes: Any) -> Damaged:
    """Its row, with these fields of the JSON changed."""
    id, namespace, name, body = codec.container_row(container)
    return Damaged(id, namespace, name, json.dumps({**json.loads(body), **changes}), "")


def test_what_can_be_read_by_itself_is_kept() -> None:
    made = salvage.container(row_of(WEB, phase="dreaming"), Remains(run_directory=4, init=INIT), "boot")
    assert (made.spec, made.run, made.phase, made.init) == (WEB.spec, 4, Phase.RUNNING, INIT)
    assert "phase" in made.damaged and "dreaming" in made.damaged


def test_a_field_of_the_spec_costs_no_other_field_of_it() -> None:
    spec = json.loads(codec.encode(replace(WEB.spec, runtime="crun")))
    made = salvage.container(row_of(WEB, spec={**spec, "args": 5, "name": []}), Remains(run_directory=4), "boot")
    assert made.spec == replace(WEB.spec, args=(), runtime="crun")
    assert "spec.args" in made.damaged


@pytest.mark.parametrize("changes", [{"phase": "dreaming"}, {"spec": 1}, {"run": -1}])
def test_nothing_that_would_act_on_a_guess_is_kept(changes: dict[str, object]) -> None:
    made = salvage.container(row_of(ALWAYS, **changes), Remains(run_directory=4), "boot")
    assert (made.spec.restart, made.spec.auto_remove) == (RestartPolicy(), False)
    for happening in (lifecycle.Again(By()), lifecycle.StartAsked(By())):
        with pytest.raises(WrongState, match="its row cannot be read"):
            lifecycle.step(replace(made, phase=Phase.EXITED, clean=True), happening, NOW)


@pytest.mark.parametrize(
    ("changes", "remains", "run", "phase"),
    [
        ({}, Remains(run_directory=4), 4, Phase.RUNNING),
        ({}, Remains(run_directory=5), 5, Phase.RUNNING),  # of a run whose intention the row does not have
        ({"phase": 1}, Remains(run_directory=4), 4, Phase.RUNNING),
        ({"phase": 1}, Remains(), 4, Phase.EXITED),
        ({"phase": 1}, Remains(logged_run=4), 4, Phase.RUNNING),  # it began; what became of it, nobody knows
        ({"phase": 1, "run": 1.5}, Remains(run_directory=3, last=ENDED), 3, Phase.EXITED),
        ({"phase": 1, "run": 1.5}, Remains(run_directory=4, last=ENDED), 4, Phase.RUNNING),
        ({"run": 2**80}, Remains(last=ENDED, logged_run=3), 3, Phase.EXITED),
        ({"phase": "exited"}, Remains(last=ENDED), 4, Phase.EXITED),
        ({"phase": "restarting"}, Remains(last=ENDED), 4, Phase.EXITED),
        ({"phase": "removing"}, Remains(), 4, Phase.REMOVING),
        ({"phase": "created"}, Remains(run_directory=4), 4, Phase.CREATED),
        ({"phase": "creating"}, Remains(run_directory=4), 4, Phase.CREATING),
        ({"phase": "creating"}, Remains(run_directory=4, init=INIT), 4, Phase.RUNNING),
        ({"phase": "starting"}, Remains(run_directory=4, init=INIT), 4, Phase.RUNNING),
        *(
            ({"phase": phase}, Remains(run_directory=5, last=ENDED), 5, Phase.RUNNING)  # the phase is of run 4
            for phase in ("exited", "restarting", "created", "creating")
        ),
        ({"phase": "removing"}, Remains(run_directory=5), 5, Phase.REMOVING),
    ],
)
def test_run_and_phase_come_from_what_is_left(
    changes: dict[str, object], remains: Remains, run: int, phase: Phase
) -> None:
    made = salvage.container(row_of(WEB, health=1, **changes), remains, "boot")
    assert (made.run, made.phase, made.exit) == (run, phase, remains.last)


def test_of_a_body_that_is_nothing_the_columns_and_the_disk_are_left() -> None:
    row = Damaged("c1", "default", "web", b"\xff\x00", "no JSON")
    made = salvage.container(row, Remains(4, INIT, "/opt/containerd-shim-kata-v2", is_pod=True), "boot")
    assert (made.id, made.spec.name, made.run, made.phase, made.init) == ("c1", "web", 4, Phase.RUNNING, INIT)
    assert (made.spec.runtime_type, made.spec.runtime_path) == ("io.containerd.kata.v2", "/opt/containerd-shim-kata-v2")
    assert made.spec.pod is not None


def test_a_task_of_containerds_stays_one_where_that_can_be_read() -> None:
    task = replace(WEB, spec=replace(WEB.spec, namespace="k8s.io", task=Task("/b")))
    made = salvage.container(row_of(task, phase=5), Remains(run_directory=4), "boot")
    assert (made.spec.task, made.spec.namespace) == (Task("/b"), "k8s.io")
    assert codec.container_row(made)[:3] == codec.container_row(task)[:3]
    lost = salvage.container(Damaged("c1", "containerd/k8s.io", "web", b"", ""), Remains(), "boot")
    assert codec.container_row(lost)[:3] == codec.container_row(task)[:3]


def test_a_name_that_is_no_utf8_becomes_one_that_can_be_stored() -> None:
    row = replace(row_of(WEB, phase=5), namespace="n\udcff", name="we\udcffb")
    made = salvage.container(row, Remains(run_directory=4), "boot")
    assert codec.container_row(made)[1:3] == ("n\\udcff", "we\\udcffb")


@pytest.mark.parametrize("later", [INIT, None])
def test_of_a_later_run_than_the_row_s_the_directory_alone_speaks(later: Process | None) -> None:
    old = replace(WEB, init=Process(66, 6), started_ns=5, sandbox_run=2, waits_in="runc")
    same = salvage.container(row_of(old, health=1), Remains(run_directory=4, init=INIT), "boot")
    assert (same.init, same.started_ns, same.sandbox_run, same.waits_in) == (Process(66, 6), 5, 2, "runc")
    made = salvage.container(row_of(old, health=1), Remains(run_directory=5, init=later), "boot")
    assert (made.run, made.init, made.started_ns, made.sandbox_run, made.waits_in) == (5, later, None, 0, "")


def test_pods_are_known_by_their_members() -> None:
    member = replace(WEB, id="m1", spec=replace(WEB.spec, sandbox="p1"))
    assert salvage.pods((member,), ()) == {"p1"} == salvage.pods((), (row_of(member, phase=5),))


def test_of_another_boot_it_has_ended_with_the_host() -> None:
    assert salvage.container(row_of(WEB, health=1, boot_id="old"), Remains(), "boot").boot_id == "old"
    assert salvage.container(row_of(WEB, health=1, boot_id="old"), Remains(4), "boot").boot_id == "boot"


def test_an_exec_is_taken_up_by_what_its_directory_names() -> None:
    e = exec_of("e1")
    body = json.dumps({**json.loads(codec.encode(e)), "phase": "dreaming"})
    made = salvage.exec_(Damaged("c1", body=body, why="", run=1, exec_id="e1"), INIT, WEB, "boot")
    assert (made.key, made.spec, made.init, made.name) == (e.key, ExecSpec(("true",)), INIT, "web")
    assert "phase" in made.error
    assert isinstance(salvage.exec_(Damaged("c1", body=b"", run=1, exec_id="e1"), None, WEB, "boot"), Exec)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800") | st.just(2**63),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [name for name in json.loads(codec.encode(WEB)) if name != "spec"]
SPEC_FIELDS = list(json.loads(codec.encode(WEB.spec)))
REMAINS = st.builds(
    Remains,
    run_directory=st.integers(0, 9),
    init=st.none() | st.just(INIT),
    logged_run=st.integers(0, 9),
    last=st.none() | st.just(ENDED),
    is_pod=st.booleans(),
)


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4),
    st.dictionaries(st.sampled_from(SPEC_FIELDS), JSON, max_size=4),
    REMAINS,
)
def test_whatever_stands_in_a_row_it_becomes_a_container_that_is_stored_and_shown(
    fields: dict[str, object], spec: dict[str, object], remains: Remains
) -> None:
    whole = json.loads(codec.encode(WEB))
    body = json.dumps({**whole, **fields, "spec": {**whole["spec"], **spec}})
    made = salvage.container(Damaged("c1", "default", "web", body, "why"), remains, "boot")
    assert codec.container_of(*codec.container_row(made)) == made
    shown = replies.container_message(View(made))
    assert (shown.id, bool(shown.damaged)) == ("c1", True)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_a_body_is_it_becomes_a_container(body: bytes) -> None:
    made = salvage.container(Damaged("c1", "default", "web", body, "why"), Remains(run_directory=1), "boot")
    assert (made.id, made.run, made.phase, len(made.damaged) < 2000) == ("c1", 1, Phase.RUNNING, True)

"""`pods`, `runp`, `stopp`, `rmp`, `inspectp`, and what other commands say of pods, over a real channel."""

import json
from pathlib import Path

import pytest
import yaml

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model import errors
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import AT, FakeDaemon, exit_of
from tests.supervisor.cli.fake_pods import NOT_READY, FakePods, failing
from tests.supervisor.cli.manifest.test_sandboxconfig import FOUNDING


@pytest.fixture
def pods(daemon: FakeDaemon) -> FakePods:
    made = FakePods(daemon)
    made.add("web", created=5, labels={"app": "x"}, annotations={"note": "hello"}, network="host")
    made.add("db", created=9, state=NOT_READY)
    return made


def by_name(pods: FakePods, name: str) -> pb.Pod:
    return next(pod for pod in pods.pods.values() if pod.spec.name == name)


def test_pods_are_listed_in_crictls_columns_the_newest_first(pods: FakePods, exitctl: Exitctl) -> None:
    lines = [[cell.strip() for cell in line.split("   ") if cell] for line in exitctl("pods").out.splitlines()]
    assert lines[0] == ["POD ID", "CREATED", "STATE", "NAME", "NAMESPACE", "ATTEMPT", "RUNTIME"]
    db, web = by_name(pods, "db"), by_name(pods, "web")
    assert [line[0] for line in lines[1:]] == [db.id[:13], web.id[:13]]
    assert [line[2:] for line in lines[1:]] == [
        ["NotReady", "db", "default", "0", "runc"],
        ["Ready", "web", "default", "0", "runc"],
    ]
    assert all(line[1].endswith(" ago") for line in lines[1:])


def test_pods_are_chosen_as_in_crictl(pods: FakePods, daemon: FakeDaemon, exitctl: Exitctl) -> None:
    web, db = by_name(pods, "web"), by_name(pods, "db")
    assert exitctl("pods", "-q").out == f"{db.id}\n{web.id}\n"
    assert exitctl("pods", "-q", "-l").out == exitctl("pods", "-q", "-n", "1").out == f"{db.id}\n"
    assert exitctl("pods", "-q", "-n", "0").out == f"{db.id}\n{web.id}\n"
    assert exitctl("pods", "-q", "--name", "^w.b$").out == f"{web.id}\n"
    assert exitctl("pods", "-q", "--namespace", "other").out == ""
    assert web.id in exitctl("pods", "--no-trunc").out
    exitctl("pods", "--id", "01", "--state", "READY", "--label", "app=x", "--label", "b=")
    asked = daemon.asked_for(pb.ListPodsRequest)[-1]
    assert list(asked.filters) == ["label=app=x", "label=b=", "id=01", "state=ready"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--name", "("), "--name '(' is no regular expression"), (("--label", "app"), "label 'app' is not of the"),
        (("--state", "up"), "'up' is not one of"), (("-o", "xml"), "'xml' is not one of"),
    ],
)  # fmt: skip
def test_a_choice_that_cannot_be_is_refused(pods: FakePods, exitctl: Exitctl, words: tuple[str, ...], why: str) -> None:
    outcome = exitctl("pods", *words)
    assert outcome.code == 2  # whether click refuses it, or exitctl
    assert why in outcome.err


def test_pods_as_json_and_yaml_are_cris_list(pods: FakePods, exitctl: Exitctl) -> None:
    document = json.loads(exitctl("pods", "-o", "json").out)
    assert document == yaml.safe_load(exitctl("pods", "-o", "yaml").out)
    assert document["items"][1] == {
        "id": by_name(pods, "web").id,
        "metadata": {"name": "web", "uid": "u-web", "namespace": "default", "attempt": 0},
        "state": "SANDBOX_READY",
        "createdAt": "1700000005000000000",
        "labels": {"app": "x"},
        "annotations": {"note": "hello"},
        "runtimeHandler": "runc",
    }


def test_verbose_says_everything_about_each(pods: FakePods, exitctl: Exitctl) -> None:
    text = exitctl("pods", "-v", "--name", "web").out
    assert text.startswith(f"ID: {by_name(pods, 'web').id}\nName: web\nUID: u-web\nNamespace: default\nStatus: Ready\n")
    assert "Labels: app -> x\nAnnotations: note -> hello\nRuntime: runc\n\n" in text


def test_inspectp_has_cris_status_and_exitds_info(pods: FakePods, exitctl: Exitctl) -> None:
    web = by_name(pods, "web")
    web.members.add(id="aa", spec=pb.ContainerSpec(name="app", pid="pod"), exit=exit_of(kind="exited", code=7))
    document = json.loads(exitctl("inspectp", "web").out)
    assert document["status"] == {
        "annotations": {"note": "hello"},
        "createdAt": "2023-11-14T22:13:25Z",
        "id": web.id,
        "labels": {"app": "x"},
        "linux": {
            "namespaces": {
                "options": {"ipc": "POD", "network": "NODE", "pid": "POD", "targetId": "", "usernsOptions": None}
            }
        },
        "metadata": {"attempt": 0, "name": "web", "namespace": "default", "uid": "u-web"},
        "network": {"additionalIps": [], "ip": ""},
        "runtimeHandler": "runc",
        "state": "SANDBOX_READY",
    }
    info = document["info"]
    assert (info["pause"]["Id"], [member["Name"] for member in info["members"]]) == (web.id, ["app"])
    assert [(exit_["name"], exit_["Code"]) for exit_ in info["exits"]] == [("app", 7)]


def test_inspectp_prints_one_document_or_a_list_yaml_templates_and_a_table(pods: FakePods, exitctl: Exitctl) -> None:
    web = by_name(pods, "web")
    assert [one["status"]["id"] for one in json.loads(exitctl("inspectp", "web", "db").out)] == [
        web.id,
        by_name(pods, "db").id,
    ]
    assert "info" not in json.loads(exitctl("inspectp", "-q", "web").out)
    assert yaml.safe_load(exitctl("inspectp", "-o", "yaml", "web").out)["status"]["state"] == "SANDBOX_READY"
    template = ("-o", "go-template", "--template", "{{.status.metadata.name}}")
    assert exitctl("inspectp", *template, "web", "db").out == "web\ndb\n"
    assert exitctl("inspectp", "-o", "table", "web").out.startswith(f"ID: {web.id}\nName: web\n")
    assert json.loads(exitctl("inspectp", "--latest").out)["status"]["metadata"]["name"] == "db"


def test_inspectp_chooses_as_pods_does(pods: FakePods, daemon: FakeDaemon, exitctl: Exitctl) -> None:
    newest = exitctl("inspectp", "--last", "1", "--namespace", "^def", "--state", "notready", "--label", "app=x").out
    assert json.loads(newest)["status"]["id"] == by_name(pods, "db").id
    assert list(daemon.asked_for(pb.ListPodsRequest)[-1].filters) == ["label=app=x", "state=notready"]
    assert exitctl("inspectp", "--last", "1", "--namespace", "other").code == 125
    assert json.loads(exitctl("inspectp", "--name", "^w").out)["status"]["id"] == by_name(pods, "web").id


def test_inspectp_goes_on_after_one_that_is_not_there(pods: FakePods, exitctl: Exitctl) -> None:
    outcome = exitctl("inspectp", "nope", "web")
    assert (outcome.code, outcome.err) == (125, "exitctl: no container nope\n")
    assert json.loads(outcome.out)["status"]["metadata"]["name"] == "web"


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--template", "{{.x}}", "web"), 2), (("-o", "go-template", "web"), 2), (("--name", "nobody"), 125)],
)
def test_inspectp_refuses_what_does_not_go_together_and_names_no_pod_that_is_not_there(
    pods: FakePods, exitctl: Exitctl, words: tuple[str, ...], code: int
) -> None:
    assert exitctl("inspectp", *words).code == code


def test_runp_takes_the_founding_documents_file_and_prints_the_id(
    pods: FakePods, daemon: FakeDaemon, exitctl: Exitctl, tmp_path: Path
) -> None:
    file = tmp_path / "sandbox-config.json"
    file.write_text(FOUNDING)
    outcome = exitctl("runp", "--runtime", "runc", str(file))
    made = by_name(pods, "nginx-sandbox")
    assert (outcome.code, outcome.out) == (0, f"{made.id}\n")
    assert outcome.err == f"exitctl: {file}:8:1: image: ignored: there is no such field\n"
    (request,) = daemon.asked_for(pb.RunPodRequest)
    assert (request.spec.runtime, request.spec.pod.on_pause_exit) == ("runc", "stop")
    assert (request.spec.pod.attempt, request.spec.pod.uid) == (1, "hdishd83djaidwnduwk28bcsb")


def test_runp_says_what_becomes_of_the_members_and_how_many_processes_there_may_be(
    pods: FakePods, daemon: FakeDaemon, exitctl: Exitctl, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text("metadata: {name: p, namespace: q}\n")
    assert exitctl("runp", "--on-pause-exit", "keep", "--pids-limit", "9", str(tmp_path / "c.yaml")).code == 0
    (request,) = daemon.asked_for(pb.RunPodRequest)
    assert (request.spec.pod.on_pause_exit, request.spec.pod.pids_limit) == ("keep", 9)
    assert len(request.spec.pod.uid) == 36


def test_runp_names_what_is_wrong_with_file_line_column_and_field(
    pods: FakePods, exitctl: Exitctl, tmp_path: Path
) -> None:
    (tmp_path / "c.json").write_text('{\n"metadata": {"name": "p"}}\n')
    outcome = exitctl("runp", str(tmp_path / "c.json"))
    assert (outcome.code, outcome.out) == (125, "")
    assert outcome.err == f"exitctl: {tmp_path}/c.json:2:1: metadata: namespace is missing\n"
    assert "No such file" in exitctl("runp", str(tmp_path / "none.json")).err


def test_stopp_says_crictls_words_and_goes_on_after_a_failure(pods: FakePods, exitctl: Exitctl) -> None:
    pods.before = failing("stop web", errors.TimedOut("it took too long"))
    outcome = exitctl("stopp", "web", "db")
    assert (outcome.code, outcome.out, outcome.err) == (125, "Stopped sandbox db\n", "exitctl: it took too long\n")
    assert exitctl("stopp", "-t", "3", "web").code == 0
    assert exitctl("stopp", "--time=3", "web").code == 0
    assert pods.done[-1] == "stop web 3"


def test_rmp_stops_a_ready_pod_only_by_force(pods: FakePods, exitctl: Exitctl) -> None:
    pods.before = failing("remove web", errors.WrongState("the pod web is Ready; stop it first, or use force"))
    outcome = exitctl("rmp", "web", "db")
    assert (outcome.code, outcome.out) == (125, "Removed sandbox db\n")
    assert "stop it first" in outcome.err
    assert exitctl("rmp", "-f", "web").out == "Stopped sandbox web\nRemoved sandbox web\n"
    assert pods.pods == {}


def test_rmp_of_all_needs_no_names_and_none_without_it_is_refused(pods: FakePods, exitctl: Exitctl) -> None:
    assert exitctl("rmp").code == exitctl("rmp", "-a", "web").code == 2
    assert exitctl("rmp", "-fa").code == 0
    assert pods.pods == {}
    assert exitctl("rmp", "-a").code == 0


def test_wait_for_a_pod_prints_each_members_code_and_name(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    ends = [
        exit_of(kind="exited", code=0, name="a"),
        exit_of(kind="unknown", cause="monitors-killed", number=0, name="b"),
        exit_of(kind="signaled", signal=9, name="c"),
    ]
    daemon.answers.Wait = lambda request: (
        pb.WaitReply(members=ends) if request.id == "pod" else pb.WaitReply(exit=exit_of(kind="exited", code=4))
    )
    outcome = exitctl("wait", "pod", "single")
    assert (outcome.code, outcome.out) == (0, "0 a\nunknown b\n137 c\n4\n")
    assert exitctl("wait", "--exit-code", "pod").code == 255


def test_ps_shows_the_pod_and_chooses_by_it(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    pause = pb.Container(id="ab" * 32, spec=pb.ContainerSpec(name="p", pod=pb.PodSpec(name="p")), created_at=AT)
    member = pb.Container(id="cd" * 32, spec=pb.ContainerSpec(name="m", sandbox=pause.id), created_at=AT)
    single = pb.Container(id="ef" * 32, spec=pb.ContainerSpec(name="s"), created_at=AT)
    daemon.answers.List = lambda _: pb.ListReply(containers=[pause, member, single])
    lines = exitctl("ps", "-p", "abab", "--pod", "cd", "--filter", "name=x").out.splitlines()
    assert lines[0].endswith("POD ID")
    assert [line.endswith(pause.id[:12]) for line in lines[1:]] == [True, True, False]
    assert list(daemon.asked_for(pb.ListRequest)[0].filters) == ["name=x", "pod=abab", "pod=cd"]
    assert exitctl("ps", "--no-trunc", "--format", "{{.PodID}}").out == f"{pause.id}\n{pause.id}\n\n"


def test_the_command_lines_of_the_founding_document_become_requests(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    sandbox = "run -tid --runtime runc --network none --annotation io.kubernetes.docker.type=podsandbox pause"
    assert exitctl(*sandbox.split()).code == 0
    member = (
        "run -tid --runtime runc --network none --annotation io.kubernetes.docker.type=container "
        "--annotation io.kubernetes.sandbox.id=abc busybox top"
    )
    assert exitctl(*member.split()).code == 0
    first, second = (request.spec for request in daemon.asked_for(pb.CreateContainerRequest))
    assert (first.tty, first.stdin, first.network, first.image) == (True, True, "none", "pause")
    assert dict(first.annotations) == {"io.kubernetes.docker.type": "podsandbox"}
    assert (second.image, list(second.args), second.runtime) == ("busybox", ["top"], "runc")
    assert second.annotations["io.kubernetes.sandbox.id"] == "abc"


def test_a_members_options_become_its_place_in_the_pod(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    exitctl("create", "--pod", "web", "--pid", "pod", "--network", "pod", "--cpus", "0.25", "/", "true")
    (spec,) = (request.spec for request in daemon.asked_for(pb.CreateContainerRequest))
    assert (spec.sandbox, spec.pid, spec.network, spec.cpu_limit_milli) == ("web", "pod", "pod", 250)
    assert not spec.HasField("pod")


def test_what_becomes_of_members_is_for_a_pause_container_to_say(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    kind = ("--annotation", "io.kubernetes.cri.container-type=sandbox")
    assert exitctl("create", "--on-pause-exit", "keep", *kind, "pause").code == 0
    (spec,) = (request.spec for request in daemon.asked_for(pb.CreateContainerRequest))
    assert spec.pod.on_pause_exit == "keep"
    outcome = exitctl("create", "--on-pause-exit", "keep", "pause")
    assert outcome.code == 125
    assert "--annotation io.kubernetes.docker.type=podsandbox (or exitctl runp)" in outcome.err

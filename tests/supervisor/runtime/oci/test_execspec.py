import copy
import json
from dataclasses import replace

import pytest

from supervisor.model.errors import BadRequest
from supervisor.model.execs import ExecSpec
from supervisor.model.rights import DEFAULT
from supervisor.model.values import Spec, Winsize
from supervisor.runtime.oci.execspec import process
from supervisor.runtime.oci.spec import Document, config
from supervisor.runtime.oci.users import Ids

WANTED = ExecSpec(("id", "-u"))
NOBODY = Ids(65534, 65534, (), "/nowhere")


def made(user: Ids = Ids(), **spec: object) -> Document:  # noqa: B008  (frozen)
    wanted = Spec(name="web", args=("serve",), rootfs="/", **spec)  # type: ignore[arg-type]
    return config(wanted, "0123456789abcdef", rootfs_path="/r", cgroups_path="/exitd/x", user=user)


def test_what_was_not_asked_is_the_containers() -> None:
    document = made(NOBODY, cwd="/srv", env=("A=1",))
    before = copy.deepcopy(document)
    own = json.loads(json.dumps(document["process"]))
    assert process(document, WANTED, None) == {**own, "args": ["id", "-u"]}
    assert document == before


def test_the_environment_is_added_to_and_wins() -> None:
    found = process(made(env=("A=1", "B=1")), replace(WANTED, env=("B=2", "C=3")), None)
    env = found["env"]
    assert isinstance(env, list)
    assert env[-3:] == ["A=1", "B=2", "C=3"]
    with pytest.raises(BadRequest, match="not of the form"):
        process(made(), replace(WANTED, env=("=",)), None)


@pytest.mark.parametrize(
    ("own", "given", "home"),
    [((), (), "/nowhere"), (("HOME=/srv",), (), "/srv"), ((), ("HOME=/mine",), "/mine")],
)
def test_another_user_has_another_home_unless_somebody_said_which(
    own: tuple[str, ...], given: tuple[str, ...], home: str
) -> None:
    found = process(made(env=own), replace(WANTED, env=given), NOBODY, own)["env"]
    assert isinstance(found, list)
    assert [line for line in found if line.startswith("HOME=")] == [f"HOME={home}"]


def test_another_user_has_the_rights_of_one_whom_execve_has_made() -> None:
    as_nobody = process(made(), WANTED, NOBODY)
    assert as_nobody["user"] == {"uid": 65534, "gid": 65534, "additionalGids": [65534]}
    assert as_nobody["capabilities"] == {"bounding": list(DEFAULT), "effective": [], "permitted": []}
    as_root = process(made(NOBODY), WANTED, Ids())
    assert as_root["capabilities"] == {key: list(DEFAULT) for key in ("bounding", "effective", "permitted")}
    assert (as_root["noNewPrivileges"], "rlimits" in as_root) == (True, True)


def test_a_bundle_without_rights_stays_without() -> None:
    assert "capabilities" not in process({"process": {"args": ["x"]}}, WANTED, Ids())
    with pytest.raises(BadRequest, match="has no process"):
        process({}, WANTED, None)


def test_a_terminal_has_a_size_and_a_name() -> None:
    plain = process(made(), WANTED, None)
    assert (plain["terminal"], "consoleSize" in plain) == (False, False)
    found = process(made(), replace(WANTED, tty=True, size=Winsize(24, 80)), None)
    assert (found["terminal"], found["consoleSize"]) == (True, {"height": 24, "width": 80})
    env = found["env"]
    assert isinstance(env, list)
    assert env[-1] == "TERM=xterm"
    env = process(made(env=("TERM=vt100",)), replace(WANTED, tty=True), None)["env"]
    assert isinstance(env, list)
    assert [line for line in env if line.startswith("TERM=")] == ["TERM=vt100"]


def test_the_working_directory_is_the_containers_unless_another_is_asked_for() -> None:
    assert process(made(cwd="/srv"), WANTED, None)["cwd"] == "/srv"
    assert process(made(cwd="/srv"), replace(WANTED, cwd="/tmp"), None)["cwd"] == "/tmp"

"""Pods and tasks under another containerd than this machine's, run by hand (docs/containerd.md); under containerd 2
with pods of both kinds. What happens under exitd must be; what happens under that containerd's own shim is not asked.

    PATH=DIRECTORY-OF-ITS-PROGRAMS:$PATH python -m pytest \
        -o python_files='check_*.py' -o python_functions='check_*' tests/system/check_containerds.py
"""

import json
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from protos.exitd.v1 import exitd_pb2
from tests.system import lives
from tests.system import test_containerd_crowd as crowd
from tests.system.containerd import cri, verbs
from tests.system.containerd.server import EXITD, IMAGE, Containerd, for_one_test
from tests.system.processes import end_process
from tests.system.test_containerd_cri import SCENES, Cri, Scene, outcome
from tests.system.test_containerd_streams import STREAMS
from tests.system.test_containerd_verbs import VERBS
from tests.system.waits import until

VERSION = subprocess.run(["containerd", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
IS_2 = VERSION.lstrip("v").startswith("2.")
KINDS = ("podsandbox", "shim") if IS_2 else ("podsandbox",)
# A pod has an address because this says so: nothing in these checks looks at its network.
PLUGIN = """#!/bin/sh
[ "$CNI_COMMAND" = ADD ] && exec echo '{"cniVersion": "0.4.0",
  "interfaces": [{"name": "eth0", "sandbox": "'"$CNI_NETNS"'"}],
  "ips": [{"version": "4", "address": "10.9.8.7/24", "interface": 0}]}'
[ "$CNI_COMMAND" = VERSION ] && exec echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.4.0"]}'
exit 0
"""
NETWORK = {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "said"}]}
# Bad days of many tasks, under one runtime.
CROWDS: dict[str, Callable[[Containerd], None]] = {
    "one after another": partial(crowd.test_runs_one_after_another_have_their_codes_and_leave_nothing, runtime=EXITD),
    "at once": partial(crowd.test_runs_at_once_have_their_codes_and_leave_nothing, runtime=EXITD),
    **{
        f"end {'after' if first else 'before'} containerd's": partial(
            crowd.test_an_end_while_containerd_is_away_is_reported_with_its_code_and_time,
            runtime=EXITD,
            killed_first=first,
        )
        for first in (True, False)
    },
    "containerd killed": partial(crowd.test_an_end_is_reported_whenever_containerd_is_killed, runtime=EXITD),
    "waited for": partial(crowd.test_a_wait_that_lasts_over_a_restart_of_containerd_is_asked_again, runtime=EXITD),
    "relay killed": partial(
        crowd.test_a_shim_killed_while_containerd_is_away_is_found_dead_and_cleaned_up, runtime=EXITD
    ),
    "relay ended": partial(crowd.test_a_shim_asked_to_end_leaves_its_task_to_containerds_cleaning, runtime=EXITD),
}


class Another(Containerd):
    """With pods of exitd's in one of the two ways that containerd 2 has."""

    sandboxer = ""

    def _config(self) -> str:
        (plugins := self.base / "none").mkdir(exist_ok=True)
        for name in ("loopback", "said"):
            (plugins / name).write_text(PLUGIN)
            (plugins / name).chmod(0o755)
        (plugins / "pods.conflist").write_text(json.dumps(NETWORK))
        handler = f'containerd.runtimes.exitd]\nruntime_type = "{EXITD}"\n'
        text = super()._config()
        assert handler in text
        return text.replace(handler, f'{handler}sandboxer = "{self.sandboxer}"\n') if IS_2 else text


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest) -> Iterator[Another]:
    base = pathlib.Path(tempfile.mkdtemp(prefix="exitd-"))
    base.chmod(0o711)
    made = Another(base, cri=True)
    made.sandboxer = request.param
    made.fifos.mkdir()
    try:
        made.start().import_images()
        assert VERSION in made.wanted("version")
        yield made
    finally:
        print(made.log.read_text()[-20_000:])
        made.end()
        shutil.rmtree(base)


@pytest.fixture
def containerd(shared: Another, monkeypatch: pytest.MonkeyPatch) -> Iterator[Another]:
    """On the host's network containerd 2.1.9 itself crashes where the sandbox is the shim's."""
    monkeypatch.setitem(cri.NAMESPACES, "network", cri.POD)
    with for_one_test(shared) as made:
        yield made  # type: ignore[misc]


@pytest.mark.parametrize("play", SCENES, ids=lambda play: play.__name__)
def check_what_happens_to_a_pod_is_seen(containerd: Another, play: Callable[[Scene], object]) -> None:
    """A scene says itself what must be; that it is the same as with containerd's own runtime the tests of containerd 1
    compare."""
    assert outcome(containerd, EXITD, play, 1)


def check_ends_of_pod_and_member_while_exitd_is_away_are_seen_and_stored_once(containerd: Another) -> None:
    scene = Scene(Cri(containerd), EXITD, "away")
    daemon = containerd.with_exitd()
    ends, go = scene.told("ends", "exit 33")
    stays = scene.pod.run("stays", "sleep", "1000")
    info = scene.cri("PodSandboxStatus", pod_sandbox_id=scene.pod.id, verbose=True).info["info"]
    daemon.kill()
    go()
    assert ends.ended() == ("exited", 33, "Error", True)
    end_process(json.loads(info)["pid"])
    until(lambda: not scene.pod.ready(), "the pod is ready without its sandbox")
    daemon.start()
    assert stays.exec("sh", "-c", "exit 4")[0] == 4
    with daemon.client() as client:
        ends_of = [(each.name, lives.word(each)) for each in client.exits(exitd_pb2.ExitsRequest())]
    assert sorted(each for each in ends_of if each[0] in (scene.pod.id, ends.id)) == sorted(
        [(scene.pod.id, "signaled 9"), (ends.id, "exited 33")]
    )
    stays("Stop", timeout=0)
    scene.pod.remove()
    scene.cri.close()
    containerd.left_is()


def check_containerd_and_exitd_are_both_restarted_under_a_pod(containerd: Another) -> None:
    scene = Scene(Cri(containerd), EXITD, "both")
    daemon = containerd.with_exitd()
    box = scene.pod.run("box", "sleep", "1000")

    def between() -> None:
        daemon.kill()

    scene.restart(between)
    assert scene.pod.ready()
    daemon.start()
    assert scene.pod.ready() and box.exec("sh", "-c", "exit 4")[0] == 4
    late = scene.pod.run("late", "sh", "-c", "exit 5")
    assert late.ended()[1] == 5
    box("Stop", timeout=0)
    scene.pod.remove()
    scene.cri.close()
    containerd.left_is()


def check_a_task_of_ctr_has_its_code_and_its_output(containerd: Another) -> None:
    box = containerd.box(EXITD, "box")
    said = box.run("--rm", "--", "sh", "-c", "echo out; exit 7")
    assert (said.code, said.out) == (7, "out\n"), said
    assert IMAGE in containerd.wanted("images", "ls", "-q")
    containerd.left_is()


@pytest.mark.parametrize("play", (*VERBS, *STREAMS), ids=lambda play: play.__name__)
def check_each_event_of_a_task_comes_and_nothing_is_left(containerd: Another, play: verbs.Scenario) -> None:
    """The deletion is waited for. What else comes, and what ctr says, the tests of containerd 1.6 compare."""
    assert verbs.outcome(containerd, EXITD, play)


@pytest.mark.parametrize("days", CROWDS)
def check_many_tasks_have_their_true_ends_on_bad_days(containerd: Another, days: str) -> None:
    CROWDS[days](containerd)

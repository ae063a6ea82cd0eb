"""Containers that containerd runs by runc, and exitd-watch only watches, where cgroup v2 is all there is: who is killed
for memory between two scrapes is counted once, with namespace, pod and container, over a restart as well, and where the
task is removed at once."""

from collections.abc import Iterator

import pytest

from supervisor.model.names import LABELS
from tests.system.scrape import Page
from tests.vm import tasks
from tests.vm.check_power import word
from tests.vm.machine import Machine

RUNC, WATCH = "io.containerd.runc.v2", "exitd-watch.service"
LIMIT_BYTES = 16 << 20
NAMESPACE = "shop"
PODS = {"app": ("web-0", "app"), "side": ("web-0", "side"), "other": ("web-1", "app")}  # pod and container, by task
# A child runs out of memory for each line, until init itself does, or ends.
BOMBS = """exec 3<>/mnt/go
while read word <&3; do
case $word in last) exec tail /dev/zero;; end) exit 5;; esac
tail /dev/zero
done"""
PAGE = "import urllib.request as web; print(web.urlopen('http://127.0.0.1:9476/metrics', timeout=60).read().decode())"
Counts = dict[tuple[str, ...], float]  # by labels
LOOKS = 120  # a second apart: a task is looked for at once, a new source every 30 seconds


@pytest.fixture
def machine(machine_with_tasks: Machine) -> Iterator[Machine]:
    tasks.bring_image(machine_with_tasks)
    machine_with_tasks.say("systemctl", "start", WATCH)
    yield machine_with_tasks
    machine_with_tasks.say("systemctl", "start", "exitd.socket", "exitd.service")  # which ends the other
    tasks.clear(machine_with_tasks)


def begin(machine: Machine, task: str, *, removed: bool = False) -> None:
    """A task with the labels that kubelet gives a container. `removed`: as soon as it has ended."""
    shared, (pod, container) = f"/run/bombs/{task}", PODS[task]
    machine.say("sh", "-c", f"mkdir -p {shared} && mkfifo {shared}/go")
    labels = zip(LABELS, (NAMESPACE, pod, container), strict=False)
    words = (
        *("ctr", "run", *(("--rm",) if removed else ("--detach", "--null-io")), "--runtime", RUNC),
        *(word for key, value in labels for word in ("--label", f"{key}={value}")),
        *("--memory-limit", str(LIMIT_BYTES), "--mount", f"type=bind,src={shared},dst=/mnt,options=rbind:rw"),
        *(tasks.IMAGE, task, "sh", "-c", BOMBS),
    )
    machine.say(*(("systemd-run", "--no-block", "--collect") if removed else ()), *words)


def say_to(machine: Machine, task: str, *words: str) -> None:
    lines = "".join(f"{word}\\n" for word in words)
    machine.say("sh", "-c", f"printf '{lines}' >/run/bombs/{task}/go")


def scrape(machine: Machine) -> Page:
    return Page(machine.say("/opt/exitd/bin/python", "-c", PAGE))


def until(machine: Machine, name: str, wanted: Counts, *labels: str) -> Page:
    """The first page on which these samples of the namespace are so; the first label is that."""
    for _ in range(LOOKS):
        page = scrape(machine)
        found = {words: value for words, value in page.of(name, *labels).items() if words[0] == NAMESPACE}
        if found == wanted:
            return page
        machine.say("sleep", "1")
    raise AssertionError(f"{name}: {found}, not {wanted}")


def kills(page: Page) -> Counts:
    return page.of("exitd_oom_kills_total", "namespace", "pod", "container")


def check_memory_kills_of_what_containerd_runs_are_counted_once_with_their_names(machine: Machine) -> None:
    for task in PODS:
        begin(machine, task, removed=task == "other")
    running: Counts = {(NAMESPACE, pod, container): 1.0 for pod, container in PODS.values()}
    until(machine, "exitd_container_running", running, "namespace", "pod", "name")
    assert not kills(scrape(machine))
    say_to(machine, "app", "now", "now", "end")
    say_to(machine, "side", "end")
    say_to(machine, "other", "last")
    reasons: Counts = {(NAMESPACE, pod, name, "self"): 1.0 for pod, name in (("web-0", "app"), ("web-0", "side"))}
    reasons |= {(NAMESPACE, "web-1", "app", "oom"): 1.0}
    page = until(machine, "exitd_named_exits_total", reasons, "namespace", "pod", "name", "reason")
    wanted = {(NAMESPACE, "web-0", "app"): 2.0, (NAMESPACE, "web-1", "app"): 1.0}
    assert kills(page) == wanted
    assert page.of("exitd_node_oom_kills_total", "of") == {("watched",): 3.0}
    machine.say("systemctl", "restart", WATCH)
    assert kills(scrape(machine)) == wanted
    ends = [(end["name"], word(end)) for end in machine.python("lives.py", "ledger") if end["name"] in PODS]
    assert sorted(ends) == [("app", ("exited", 5)), ("other", ("signaled", 9)), ("side", ("exited", 5))]

"""The alerts, the dashboard and the page about metrics speak of metrics that there are."""

import json
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import yaml

from supervisor.cli import story
from supervisor.metrics import families
from supervisor.metrics.exposition import lines
from supervisor.metrics.families import shown
from supervisor.model.values import Exited, Names, Phase
from supervisor.store import counts
from tests.supervisor.metrics.test_families import EMPTY, container, grouped
from tests.supervisor.stored import ended

ROOT = pathlib.Path(__file__).resolve().parent.parent
RULES = ROOT / "monitoring/exitd.rules.yml"
DASHBOARD = ROOT / "monitoring/exitd-dashboard.json"
PAGE = (ROOT / "docs/metrics.md").read_text()
NAME = re.compile(r"\bexitd_[a-z_]+\b")
SELECTOR = re.compile(r"\b(exitd_[a-z_]+)\{([^}]*)\}")
GROUPING = re.compile(r"\bby \(([^)]*)\)")
OF_PROMETHEUS = {"job", "instance", "le"}


def served() -> dict[str, set[str]]:
    """Every family's name, and its labels, with all there can be."""
    exit = replace(ended("c1", at_ns=5, status=Exited(3)), names=Names("n", "p", "c", "i"))
    kills = counts.of_kills(counts.CONTAINER, exit.names, 1, 5)
    own = shown("c1", exit.names, "c", container(Phase.EXITED, exit=exit))
    now = replace(EMPTY, counts=grouped((*counts.of_exit(exit), *kills)), containers=(own,), phases={"running": 1})
    now = replace(now, watches=(("/s", "containerd", 1),))
    found: dict[str, set[str]] = {}
    for family in families.families(now):
        text = "".join(lines(family))
        found[family.name] = set(re.findall(r'([a-z_]+)="', text)) - {"le"}
    return found


FAMILIES = served()


def family_of(name: str) -> str:
    """A histogram's samples have names of their own."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return name if name in FAMILIES else base


def wrong(expression: str) -> list[str]:
    """What an expression names that is not there."""
    found = [name for name in NAME.findall(expression) if family_of(name) not in FAMILIES]
    for name, selector in SELECTOR.findall(expression):
        labels = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", selector))
        found += [f"{name}: {label}" for label in labels - FAMILIES.get(family_of(name), set()) - OF_PROMETHEUS]
    known = OF_PROMETHEUS.union(*(FAMILIES[family_of(name)] for name in NAME.findall(expression) if not found))
    for group in GROUPING.findall(expression):
        found += [label for label in map(str.strip, group.split(",")) if label and label not in known]
    return found


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


def expressions(panels: list[dict[str, Any]]) -> Iterator[str]:
    for panel in panels:
        yield from (target["expr"] for target in panel.get("targets", ()))
        yield from expressions(panel.get("panels", []))


def test_every_alert_is_about_metrics_and_labels_that_there_are() -> None:
    assert [(rule["alert"], found) for rule in alerts() if (found := wrong(rule["expr"]))] == []


def test_every_alert_says_what_it_means_and_is_on_the_page() -> None:
    for rule in alerts():
        assert rule["annotations"].keys() == {"summary", "description"} and rule["labels"]["severity"]
    assert re.findall(r"^\| `(Exitd\w+)` \|", PAGE, re.MULTILINE) == [rule["alert"] for rule in alerts()]


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    shown_ = list(expressions(dashboard["panels"]))
    assert len(shown_) > 15 and [(each, found) for each in shown_ if (found := wrong(each))] == []
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_page_has_every_metric_with_its_labels_and_no_other() -> None:
    rows = re.findall(r"^\| `(exitd_[a-z_]+)` \|([^|]*)\|(?:([^|]*)\|)?$", PAGE, re.MULTILINE)
    said = {name: set(re.findall(r"`([a-z_]+)`", labels)) for name, labels, rest in rows if rest}
    assert said == {name: labels for name, labels in FAMILIES.items() if name in said}
    each = {name for name, _, rest in rows if not rest}
    assert each | said.keys() == FAMILIES.keys() and not each & said.keys()
    wanted = {"id", "name", "namespace", "pod", "image"}
    assert all(FAMILIES[name] == wanted for name in each if name != "exitd_named_exits_total")


def test_each_cause_of_an_unknown_end_is_explained_by_why_and_by_the_operators_page() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    assert [cause for cause in families.CAUSES if f"`{cause}`" not in page] == []
    assert story.CAUSES.keys() == set(families.CAUSES)


def test_a_name_that_is_not_there_is_found() -> None:
    assert wrong("exitd_nothing") == ["exitd_nothing"]
    assert wrong('exitd_ready{what="x"}') == ["exitd_ready: what"]
    assert wrong("sum by (what) (exitd_ready)") == ["what"]
    assert not wrong('sum by (stage, le) (rate(exitd_exit_latency_seconds_bucket{stage="seen",job="x"}[5m]))')


def test_promtool_takes_the_rules() -> None:
    """Where Prometheus' own checker is; its grammar is not checked elsewhere."""
    promtool = shutil.which("promtool")
    if promtool is not None:
        done = subprocess.run([promtool, "check", "rules", str(RULES)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

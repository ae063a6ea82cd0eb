"""The alerts, the dashboard and the page about metrics speak of metrics that there are."""

import json
import pathlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class Firing:
    """Series, a sample a minute in promtool's words, and after how many minutes which alerts there are, by their own
    labels beside the rule's."""

    alert: str
    series: dict[str, str]
    at: dict[int, list[dict[str, str]]]


A = {"job": "exitd", "instance": "a"}
IN_A = 'job="exitd",instance="a"'
OF_POD = {"namespace": "shop", "pod": "web-0", "container": "app"}
FIRINGS = [
    # What is back within two minutes was restarted.
    Firing(
        "ExitdDown",
        {f"up{{{IN_A}}}": "1 1 0 0 0 0 1", 'up{job="exitd",instance="b"}': "1 1 0 1 1 1 1", 'up{job="other"}': "0x6"},
        {3: [], 5: [A], 6: []},
    ),
    Firing("ExitdNotReady", {f"exitd_ready{{{IN_A}}}": "1 0 0 0 1"}, {2: [], 3: [A], 4: []}),
    # An end by a reboot is no alarm; the first one of a cause counts, for that cause begins with 0.
    Firing(
        "ExitdEndsUnknown",
        {
            f'exitd_exit_unknown_total{{{IN_A},kind="container",cause="monitors-killed"}}': "0x9 1x20",
            f'exitd_exit_unknown_total{{{IN_A},kind="container",cause="host-rebooted"}}': "0x9 50x20",
        },
        {9: [], 11: [{"instance": "a", "cause": "monitors-killed"}], 29: []},
    ),
    # The time of the last kill is in seconds.
    Firing(
        "ExitdOutOfMemory",
        {'exitd_oom_last_kill_timestamp_seconds{namespace="shop",pod="web-0",container="app"}': "_x4 300x20"},
        {3: [], 6: [OF_POD], 14: [OF_POD], 16: []},
    ),
    Firing("ExitdShimsDie", {f"exitd_shim_deaths_total{{{IN_A}}}": "0 2 3 3 9x20"}, {3: [], 5: [A], 24: []}),
    # Without containers it is not needed.
    Firing(
        "ExitdKeeperGone",
        {
            f"exitd_keeper_up{{{IN_A}}}": "1 0x20",
            f'exitd_containers{{{IN_A},phase="running"}}': "3x20",
            'exitd_keeper_up{job="exitd",instance="b"}': "0x20",
            'exitd_containers{job="exitd",instance="b",phase="running"}': "0x20",
        },
        {5: [], 7: [A]},
    ),
    *(
        Firing(
            alert,
            {
                f'{name}_bucket{{{IN_A}{stage},le="0.1"}}': "0+1x60",
                f'{name}_bucket{{{IN_A}{stage},le="5"}}': "0+50x60",
                f'{name}_bucket{{{IN_A}{stage},le="+Inf"}}': "0+50x60",
                f'{name}_bucket{{job="exitd",instance="b"{stage},le="0.1"}}': "0+50x60",
                f'{name}_bucket{{job="exitd",instance="b"{stage},le="+Inf"}}': "0+50x60",
            },
            {8: [], 40: [labels]},
        )
        for alert, name, stage, labels in (
            ("ExitdDiskSlow", "exitd_store_flush_seconds", "", {"instance": "a"}),
            ("ExitdLoopLags", "exitd_loop_lag_seconds", "", {"instance": "a"}),
            ("ExitdEndsLate", "exitd_exit_latency_seconds", ',stage="stored"', {"instance": "a", "stage": "stored"}),
        )
    ),
]


def promtool(*words: object) -> None:
    """Prometheus' own checker, which `make deps` brings."""
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules() -> None:
    promtool("check", "rules", RULES)


def as_fired(rule: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """An alert as promtool expects it to be written."""
    said = {
        key: re.sub(r"{{ \$labels\.(\w+) }}", lambda at: labels[at[1]], text)
        for key, text in rule["annotations"].items()
    }
    return {"exp_labels": labels | rule["labels"], "exp_annotations": said}


def test_each_alert_fires_for_what_it_is_about_and_for_nothing_else(tmp_path: pathlib.Path) -> None:
    rules = {rule["alert"]: rule for rule in alerts()}
    assert sorted(each.alert for each in FIRINGS) == sorted(rules)
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in each.series.items()],
            "alert_rule_test": [
                {
                    "eval_time": f"{minutes}m",
                    "alertname": each.alert,
                    "exp_alerts": [as_fired(rules[each.alert], labels) for labels in wanted],
                }
                for minutes, wanted in each.at.items()
            ],
        }
        for each in FIRINGS
    ]
    asked = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    (file := tmp_path / "tests.yml").write_text(json.dumps(asked))
    promtool("test", "rules", file)

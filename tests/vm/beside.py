"""exitd and podman in the same machine: what of each manifest has to hold, and the table of
docs/play-beside-podman.md.

A fact is a line of shell, the same for both tools, and what its output has to show: both have docker's verbs. Where
they differ, variables have the tool's words.
"""

import re
from dataclasses import dataclass

WAIT_SECONDS = 4.0  # of the machine's clock, until a fact has to hold that is not one at once
END = "<!-- end of what was measured -->\n"
SAID_CHARACTERS = 200
LINES = 2
ALL = "all"  # of what has to hold
NOT_YET = "not measured"


@dataclass(frozen=True)
class Tool:
    """One of the two: its words for the variables of the scripts."""

    name: str
    words: dict[str, str]
    load: str
    clear: str  # prints what is left after it


EXITD = Tool(
    "exitd",
    {
        "T": "exitctl",
        "PLAY": "exitctl play",
        "DOWN": "exitctl play --down",
        "PODS": "exitctl pods -q",
        "FIRST": "0",
        "LIVENESS": "{{.State.Probes.Liveness.Status}}",
        "WHY": "exitctl why ",
    },
    "exitctl image load docker-archive:$CHARTS/images.tar",
    "$DOWN $FILE >/dev/null 2>&1; for each in $(exitctl volume ls -q); do exitctl volume rm $each >/dev/null; done;"
    " exitctl pods -q; exitctl ps -aq",
)
PODMAN = Tool(
    "podman",
    {
        "T": "podman",
        "PLAY": "podman kube play",
        "DOWN": "podman kube down",
        "PODS": "podman pod ps -q",
        "FIRST": "pod",
        "LIVENESS": "{{.State.Health.Status}}",
        "WHY": "podman events --stream=false --filter container=",
    },
    "podman load -i $CHARTS/images.tar",
    "$DOWN --force $FILE >/dev/null 2>&1 || { podman pod rm -fa -t 0; podman volume rm -fa; podman secret rm --all; }"
    " >/dev/null; podman ps -aq; podman volume ls -q",
)


@dataclass(frozen=True)
class Fact:
    """`what`: for the table. It holds as soon as `wanted`, an expression, is in the output of `script`."""

    what: str
    script: str
    wanted: str
    seconds: float = WAIT_SECONDS


@dataclass(frozen=True)
class Table:
    """One of the page's, below the line `begin`, which stands there once. `wanted`: what has to hold, by row."""

    begin: str
    title: str
    wanted: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """What came of one manifest with one tool. `said`: by the play. `facts`: whether each holds, and what was seen."""

    status: int
    said: str
    facts: tuple[tuple[bool, str], ...]


def _logs(container: str) -> str:
    return f"$T logs {container}"


def _hidden(container: str, secret: str) -> Fact:
    return Fact("`inspect` does not show it", f"$T inspect {container} | grep -c {secret}", "^0$", 0)


def _exited(what: str, container: str, code: int) -> Fact:
    shown = "{{.State.Status}} {{.State.ExitCode}}"
    return Fact(what, f"$T inspect -f '{shown}' {container}", f"^exited {code}$")


AGAIN = (
    "seen=/run/$T.started; now=$($T inspect -f '{{.State.StartedAt}}' liveness-app);"
    ' test -e $seen || echo $now >$seen; test "$now" = "$(cat $seen)" || echo again'
)
LIMITS = (
    "pid=$($T inspect -f '{{.State.Pid}}' limited-app); own=/sys/fs/cgroup$(cut -d: -f3 /proc/$pid/cgroup);"
    " cat $own/%s $own/../%s"
)
CAT = "$T exec nginx-nginx cat"
COUNT = "set -- $($PODS); echo $#"

FACTS: dict[str, tuple[Fact, ...]] = {
    "nginx-configmap": (
        Fact("one file of a ConfigMap by `subPath`", f"{CAT} /usr/share/nginx/html/index.html", "hello"),
        Fact("another by `items`", f"{CAT} /etc/nginx/conf.d/default.conf", "listen 80"),
        Fact("asked by `readinessProbe`, `httpGet` on a port by its name", _logs("nginx-nginx"), "^/$"),
    ),
    "redis": (
        Fact("begun with its configuration", _logs("redis-redis"), "^maxmemory 64mb$"),
        Fact("asked by `readinessProbe`, `exec`", "$T exec redis-redis cat /tmp/asked", "redis-cli"),
        Fact("healthy by `livenessProbe`, `tcpSocket`", "$T inspect -f \"$LIVENESS\" redis-redis", "^healthy$"),
    ),
    "postgres": (
        Fact(
            "a Secret as a variable", "$T exec postgres-$FIRST-postgres sh -c 'echo $POSTGRES_PASSWORD'",
            "^secret-of-postgres$",
        ),
        _hidden("postgres-$FIRST-postgres", "secret-of-postgres"),
        Fact("asked by `readinessProbe`, `exec`", "$T exec postgres-$FIRST-postgres cat /tmp/asked", "pg_isready"),
        Fact(
            "what is in a claim, by `subPath`, outlives `--replace`",
            "$T exec postgres-$FIRST-postgres sh -c 'echo kept >/var/lib/postgresql/data/file';"
            " $PLAY --replace $FILE && $T exec postgres-$FIRST-postgres cat /var/lib/postgresql/data/file",
            "^kept$", 0,
        ),
    ),
    "wordpress": (
        Fact(
            "a Secret as a variable of both", "$T exec wordpress-mysql sh -c 'echo $MYSQL_ROOT_PASSWORD';"
            " $T exec wordpress-web sh -c 'echo $WORDPRESS_DB_PASSWORD'",
            "secret-of-wordpress\nsecret-of-wordpress",
        ),
        _hidden("wordpress-mysql wordpress-web", "secret-of-wordpress"),
        Fact("one loopback for both", "$T exec wordpress-web mysqladmin ping", "PONG"),
        Fact("asked by `readinessProbe`, `httpGet`", _logs("wordpress-web"), "^/wp-login.php$"),
    ),
    "job": (
        Fact("its output", _logs("job-pi"), "^3.14159$"),
        Fact("`--wait` ends with 0", "$DOWN $FILE; $PLAY --wait $FILE; echo status $?", "^status 0$", 0),
    ),
    "job-failing": (
        _exited("what failed once is tried again, and ends with 0", "failing-again", 0),
        _exited("what has a policy of its own ends with 3", "failing-once", 3),
        Fact(
            "and is not tried again", "sleep 3; $T inspect -f '{{.State.Status}} {{.RestartCount}}' failing-once",
            "^exited 0$", 0,
        ),
        Fact("`--wait` ends with 3", "$DOWN $FILE; $PLAY --wait $FILE; echo status $?", "^status 3$", 0),
    ),
    "init-containers": (
        Fact("one after another, before the program", _logs("prepared-app"), "^v42$"),
        _exited("the program's code", "prepared-app", 0),
        Fact("what an init container has said is there afterwards", _logs("prepared-permissions"), "^777$"),
    ),
    "sidecar-logger": (
        _exited("the sidecar is there before the program", "logged-app", 0),
        Fact("it is ended after the program, by its signal", _logs("logged-shipper"), "^line$"),
    ),
    "probes": (
        Fact("asked by `startupProbe` or `livenessProbe`, `httpGet`", _logs("probed-app"), "^/healthz"),
        Fact("with the probe's header", _logs("probed-app"), "^/healthz X-Probe: liveness$"),
        Fact("healthy by `livenessProbe`", "$T inspect -f \"$LIVENESS\" probed-app", "^healthy$"),
        Fact("asked by `readinessProbe`", _logs("probed-app"), "^/ready"),
    ),
    "liveness-exec": (
        Fact("a second run", AGAIN, "^again$", 20),
        Fact("what ended the first can be read", "eval ${WHY}liveness-app", "unhealthy|probe"),
    ),
    "downward-api": (
        Fact("name, namespace and a limit as variables", _logs("downward-app"), "^downward default 250$"),
        Fact("labels as a file", _logs("downward-app"), '^app="downward"\ntier="front"$'),
        Fact("a limit as a file", _logs("downward-app"), "^64$"),
    ),
    "deployment": (
        Fact("three pods", COUNT, "^3$", 0),
        Fact("taken down as a whole", f"$DOWN $FILE >/dev/null; {COUNT}", "^0$", 0),
    ),
    "batch-job": (
        Fact("what failed once is tried again, and ends with 0", _logs("migrate-pod-app"), "^migrated$"),
        Fact("taken down as a whole", f"$DOWN $FILE >/dev/null; {COUNT}", "^0$", 0),
    ),
    "daemon-set": (
        Fact("one pod", COUNT, "^1$", 0),
        Fact("it is at work on the node", "cat $SHARED/node/said", "^agent$"),
        Fact("by this name", "$T inspect -f '{{.State.Status}}' agent-pod-app", "^running$"),
        Fact("taken down as a whole", f"$DOWN $FILE >/dev/null; {COUNT}", "^0$", 0),
    ),
    "security-context": (
        Fact("`runAsUser`", _logs("confined-app"), "^1000$"),
        Fact("a root that is only read", _logs("confined-app"), "^read-only$"),
        Fact("`fsGroup` for an emptyDir", _logs("confined-app"), "^2000$"),
        Fact("which may read a Secret's file of mode 0400", _logs("confined-app"), "secret-of-confined$"),
        _hidden("confined-app", "secret-of-confined"),
    ),
    "hooks": (
        Fact("`postStart`", "$T exec hooked-app cat /work/said", "^started$"),
        Fact("`preStop`, before the signal", "$T stop hooked-app >/dev/null; $T logs hooked-app", "^drained$", 0),
    ),
    "projected": (
        Fact("a ConfigMap, a Secret and a field in one directory", _logs("projected-app"),
             "^blue\nsecret-of-projected\nprojected"),
        Fact("with the mode of one item", _logs("projected-app"), "projected400$"),
    ),
    "memory": (
        Fact("a tmpfs", _logs("memory-app"), "^tmpfs$"),
        Fact("`sizeLimit` holds", _logs("memory-app"), "^1048576$", 10),
    ),
    "deadline": (
        _exited("ended after two seconds, with the code of its program", "late-app", 5),
    ),
    "env-from": (
        Fact("all keys of a ConfigMap and of a Secret, and a URL made of them", _logs("envfrom-app"),
             "^pg://app:secret-of-env-from@db.example:5432/"),
        Fact("a Secret in the command line", _logs("envfrom-app"), "--password=secret-of-env-from$"),
        _hidden("envfrom-app", "secret-of-env-from"),
    ),
    "host-path": (
        Fact("the directory is made", "cat $SHARED/made/said", "^here$"),
    ),
    "resources": (
        Fact("the limit of memory", LIMITS % (("memory.max",) * 2), "^33554432$"),
        Fact("the limit of processors", LIMITS % (("cpu.max",) * 2), "^50000 100000$"),
        Fact("one pid namespace", "$T exec limited-app cat /proc/1/cmdline", "pause|catatonit"),
    ),
    "whole-chart": (
        Fact("two pods", COUNT, "^2$", 0),
        Fact("begun after an init container that needs the ConfigMap", _logs("chart-$FIRST-web"), "^nginx"),
        Fact("asked by `readinessProbe`, `httpGet`", _logs("chart-$FIRST-web"), "^/$"),
        Fact("what is left out is named", "cat $PLAYED", "Service"),
    ),
}  # fmt: skip


def cell(facts: tuple[Fact, ...], outcome: Outcome) -> str:
    """What the table says of one manifest with one tool."""
    if outcome.status:
        return f"refused, {outcome.status}: {_quoted(outcome.said)}"
    failed = [
        f"**not:** {fact.what}: {_quoted(said)}"
        for fact, (held, said) in zip(facts, outcome.facts, strict=True)
        if not held
    ]
    return ". ".join(failed) or ALL


def _quoted(said: str) -> str:
    """The last lines that say something, ids apart, in code, as a cell of a table may have it."""
    lines = [" ".join(line.split()) for line in said.replace("\0", " ").splitlines()]
    telling = [line for line in lines if line and not re.fullmatch(r"[0-9a-f]{12,}|\w+:", line)][-LINES:]
    if not telling:
        return "nothing is there"
    shown = " / ".join(re.sub("[0-9a-f]{64}", "ID", line) for line in telling)
    shown = shown if len(shown) <= SAID_CHARACTERS else f"{shown[:SAID_CHARACTERS]}..."
    return f"`{shown.replace('`', chr(39)).replace('|', chr(92) + '|')}`"


TABLE = Table(
    "<!-- measured -->\n", "manifest", {name: "; ".join(fact.what for fact in facts) for name, facts in FACTS.items()}
)


def with_row(page: str, table: Table, versions: str, name: str, tool: Tool, cell: str) -> str:
    """The page with what a run has found of one row with one tool; of all others it has what it had.

    Raises ValueError when the page has no place for the table."""
    before, begin, rest = page.partition(table.begin)
    measured, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no place for what was measured")
    cells = _cells(measured)
    cells.setdefault(name, {})[tool.name] = cell
    rows = [f"| `{row}` | {wanted} | {' | '.join(_of(row, cells))} |" for row, wanted in table.wanted.items()]
    head = (f"| {table.title} | what has to hold | exitd | podman |", "|---|---|---|---|")
    return "".join((before, begin, "\n".join(("", versions, "", *head, *rows, "", "")), END, after))


def _cells(table: str) -> dict[str, dict[str, str]]:
    """By manifest and tool, of a table that `with_row` has made; a | within a cell has a backslash."""
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): {EXITD.name: row[2], PODMAN.name: row[3]} for row in rows}


def _of(name: str, cells: dict[str, dict[str, str]]) -> list[str]:
    found = cells.get(name, {})
    return [found.get(tool.name, NOT_YET) for tool in (EXITD, PODMAN)]

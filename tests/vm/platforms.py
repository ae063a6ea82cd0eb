"""docs/platforms.md: what was checked in which machine, and with which result. The run writes it, and reads what
earlier ones have written: of each row the newest result stays."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

HEAD = """# Platforms

What has been checked in which machine, and with which result. `make vm-test` writes this page ([vm.md](vm.md)); of each
row it has the newest result, with the commit that was checked. A `+` says that files had changed since. Minutes are the
host's, which had other work at the time. With the seed of a row `EXITD_VM_SEED=N make vm-test` chooses the same.
"""
TITLES = ("checked", "passed", "failed", "not asked", "minutes", "commit", "seed")
NO_FAILURE = "0"
NO_SEED = "-"  # nothing was chosen by one, or an earlier page did not say


@dataclass(frozen=True)
class Row:
    """One line: so many checks, or tests, of one kind. `failed`: by name. `left`: not asked of this machine."""

    what: str
    passed: int
    failed: tuple[str, ...]
    left: int
    minutes: float
    commit: str
    seed: str = NO_SEED

    def text(self) -> str:
        failed = f"{len(self.failed)}: {', '.join(self.failed)}" if self.failed else NO_FAILURE
        cells = (self.what, str(self.passed), failed, str(self.left), f"{self.minutes:.1f}", self.commit, self.seed)
        return f"| {' | '.join(cells)} |"


@dataclass
class Platform:
    """A machine: what it is, and its rows by what was checked."""

    facts: str
    rows: dict[str, Row] = field(default_factory=dict)


def read(text: str) -> dict[str, Platform]:
    """The platforms of a page that `page` has made, by name; of anything else none."""
    found: dict[str, Platform] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = section.partition("\n")
        lines = [line for line in rest.splitlines() if line]
        rows = [row for line in lines[1:] if (row := _row(line))]
        found[name] = Platform(lines[0] if lines else "", {row.what: row for row in rows})
    return found


def _row(line: str) -> Row | None:
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    cells += [NO_SEED] if len(cells) == len(TITLES) - 1 else []
    if len(cells) != len(TITLES) or not cells[1].isdecimal():
        return None
    what, passed, failed, left, minutes, commit, seed = cells
    names = tuple(failed.partition(": ")[2].split(", ")) if failed != NO_FAILURE else ()
    return Row(what, int(passed), names, int(left), float(minutes), commit, seed)


def with_run(
    text: str, name: str, facts: str, rows: Iterable[Row], is_asked: Callable[[str], bool] = lambda what: True
) -> str:
    """The page with what a run has found: its rows are in the place of those of the same name. Rows of what no run asks
    any more are gone."""
    platforms = read(text)
    platform = platforms.setdefault(name, Platform(facts))
    platform.facts = facts
    platform.rows |= {row.what: row for row in rows}
    for each in platforms.values():
        each.rows = {what: row for what, row in each.rows.items() if is_asked(what)}
    return page(platforms)


def page(platforms: dict[str, Platform]) -> str:
    parts = [HEAD]
    for name, platform in sorted(platforms.items()):
        lines = [row.text() for _, row in sorted(platform.rows.items())]
        head = (f"| {' | '.join(TITLES)} |", f"|{'---|' * len(TITLES)}")
        parts.append("\n".join((f"## {name}", "", platform.facts, "", *head, *lines, "")))
    return "\n".join(parts)

"""A report for people: as a table, as a page, as a picture."""

import importlib
import importlib.util

from supervisor.compare import facts
from supervisor.compare.facts import Report


def table(report: Report) -> str:
    return _rendered("supervisor.compare.table", "table", report)


def page(report: Report) -> str:
    return _rendered("supervisor.compare.html", "page", report)


def picture(report: Report) -> str:
    return _rendered("supervisor.compare.html", "picture", report)


def _rendered(module: str, name: str, report: Report) -> str:
    if importlib.util.find_spec(module) is None:
        return facts.encode(report)
    text: str = getattr(importlib.import_module(module), name)(report)
    return text

"""Looks at the page of a comparison as a browser shows it: nothing missing, nothing too wide, nothing fetched."""

import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from chromium import Page, Trouble, opened

from supervisor.compare.facts import BadReport, decode, encode

REPORT = pathlib.Path(__file__).resolve().parent.parent / "build/compare/report.html"
WIDTH, HEIGHT = 1024, 800
SIZES = """[...document.querySelectorAll(".plot")].map((each, at) => {
  const box = each.getBoundingClientRect();
  return [each.querySelector("title, caption")?.textContent ?? `number ${at + 1}`, box.width, box.height];
})"""


def main(arguments: list[str]) -> int:
    path = pathlib.Path(arguments[0]).resolve() if arguments else REPORT
    if not path.is_file():
        print(f"{path}: not there; `make compare` writes a report", file=sys.stderr)
        return 2
    try:
        with opened() as page:
            _open(page, path.as_uri())
            found = list(_complaints(page, path.as_uri()))
            plots = len(page.value(SIZES))
            picture = path.with_suffix(".png")
            picture.write_bytes(page.picture())
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 2
    for each in found:
        print(f"{path.name}: {each}", file=sys.stderr)
    if not found:
        print(f"{path.name}: {plots} plots, at most {WIDTH} px wide, nothing fetched; shown in {picture}")
    return 1 if found else 0


def _open(page: Page, url: str) -> None:
    for each in ("Page", "Runtime", "Log", "Network"):
        page.call(f"{each}.enable")
    page.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
    page.call("Page.navigate", url=url)
    page.wait_for("Page.loadEventFired")


def _complaints(page: Page, url: str) -> Iterator[str]:
    wide = page.value("document.documentElement.scrollWidth")
    if wide > WIDTH:
        yield f"{wide} px wide, so that a window of {WIDTH} px scrolls sideways"
    plots = page.value(SIZES)
    if not plots:
        yield "no plot in it"
    yield from (f"the plot {title!r} has no size" for title, width, height in plots if width < 1 or height < 1)
    yield from of_data(page.value('document.getElementById("report")?.textContent'))
    yield from of_events(page.events, url)


def of_data(text: str | None) -> Iterator[str]:
    """What is read from it, written again, is the same."""
    if text is None:
        yield "no data in it"
        return
    try:
        if json.loads(encode(decode(text))) != json.loads(text):
            yield "its data are not read as they were written"
    except BadReport as error:
        yield f"its data: {error}"


def of_events(events: list[tuple[str, dict[str, Any]]], url: str) -> Iterator[str]:
    for method, said in events:
        match method:
            case "Network.requestWillBeSent" if said["request"]["url"].partition("#")[0] != url:
                yield f"it asks for {said['request']['url']}"
            case "Runtime.exceptionThrown":
                yield f"a script fails: {said['exceptionDetails']['text']}"
            case "Runtime.consoleAPICalled" if said["type"] in ("error", "warning", "assert"):
                yield f"the console says: {said['args']}"
            case "Log.entryAdded" if said["entry"]["level"] in ("error", "warning"):
                yield f"the browser says: {said['entry']['text']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

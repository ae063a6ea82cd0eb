"""A daemon whose metrics are served at a socket, and its pages as a scraper reads them."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.system.daemons import Daemon, directory
from tests.system.processes import processes_of
from tests.system.waits import LIMIT_SECONDS, until

Labels = tuple[tuple[str, str], ...]


class Page:
    """All samples of one page."""

    def __init__(self, text: str) -> None:
        self.samples: dict[tuple[str, Labels], float] = {}
        for family in text_string_to_metric_families(text):
            for each in family.samples:
                key = each.name, tuple(sorted(each.labels.items()))
                assert key not in self.samples, key
                self.samples[key] = each.value

    def of(self, name: str, *labels: str, zeros: bool = False) -> dict[tuple[str, ...], float]:
        """The samples of one name, by the words of these labels, added up; without those that are zero."""
        found: dict[tuple[str, ...], float] = {}
        for (each, pairs), value in self.samples.items():
            if each == name and (value or zeros):
                words = tuple(dict(pairs)[label] for label in labels)
                found[words] = found.get(words, 0) + value
        return found

    def total(self, *names: str) -> float:
        return sum(value for (each, _), value in self.samples.items() if each in names)


def ask(place: str | tuple[str, int], path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    """Status and body."""
    family = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
    with socket.socket(family) as line:
        line.settimeout(LIMIT_SECONDS)
        line.connect(place)
        line.sendall(f"{method} {path} HTTP/1.1\r\nHost: exitd\r\n\r\n".encode())
        whole = b"".join(iter(lambda: line.recv(1 << 16), b""))
    head, _, body = whole.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body.decode()


def scrape(daemon: Daemon) -> Page:
    """The page of this moment; the daemon may have been started a moment ago."""

    def answer() -> str:
        with contextlib.suppress(OSError):
            status, body = ask(f"{daemon.base}/m")
            assert status == 200, body
            return body
        return ""

    return Page(until(answer, "no page of metrics"))


@contextlib.contextmanager
def scraped(text: str = "", **how: Any) -> Iterator[Daemon]:
    """A daemon for the block, which serves metrics. `text`: more of its configuration."""
    with directory() as base:
        (base / "config.toml").write_text(f'{text}\n[metrics]\nlisten = "unix:{base}/m"\ncontainers = true\n')
        made = Daemon(base, extra=("--config", f"{base}/config.toml"), **how)
        try:
            yield made.start()
        finally:
            made.end()
        until(lambda: not processes_of(base), f"still there: {processes_of(base)}")

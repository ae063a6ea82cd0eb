"""The three pages, and where they are served if the configuration says so."""

from collections.abc import Callable
from http import HTTPStatus

from supervisor.config import listen
from supervisor.metrics import exposition
from supervisor.metrics.page import Page
from supervisor.metrics.server import MetricsServer, Pages, Reply
from supervisor.metrics.sources import Parts, Sources


class MetricsPages:
    """Belongs to one event loop."""

    def __init__(self, parts: Parts) -> None:
        self._why_not_ready = parts.why_not_ready
        self._sources = Sources(parts)
        self._page = Page(self._sources.look)
        self._server: MetricsServer | None = None

    async def text(self) -> str:
        """Return the page of metrics."""
        return await self._page.text()

    async def serve(self, place: str, admit: Callable[[str], object]) -> None:
        """Serve at the place, as the configuration has it, until `close`. Returns once that has begun. `admit`: opens a
        socket's path to those who may connect."""
        self._sources.loop_lag.begin()
        self._server = MetricsServer(listen.parse(place), self._pages(), admit)
        await self._server.serve()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
        await self._sources.close()

    def _pages(self) -> Pages:
        return {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._readiness}

    async def _metrics(self) -> Reply:
        text = await self._page.text()
        return Reply(text.encode("utf-8", "replace"), kind=exposition.CONTENT_TYPE)

    async def _health(self) -> Reply:
        """Whether the event loop turns: it has just done so. A full disk is no reason to restart exitd."""
        return Reply(b"ok\n")

    async def _readiness(self) -> Reply:
        why = self._why_not_ready()
        return Reply(f"{why}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE) if why else Reply(b"ok\n")

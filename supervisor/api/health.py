"""grpc.health.v1: is the daemon serving? NOT_SERVING while a commit cannot be stored, and at shutdown.

Written here because grpcio-health-checking's own servicer forgets every other watcher of a service when one goes away.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from grpc_health.v1 import health_pb2 as pb  # type: ignore[import-untyped]  # ships no py.typed

from supervisor.api.table import EXITD

if TYPE_CHECKING:
    import grpc.aio

SERVICE = pb.DESCRIPTOR.services_by_name["Health"]
SERVICES = ("", EXITD.full_name)  # the whole, and the one service it consists of


class HealthService:
    """The servicer of grpc.health.v1.Health. `set` may be called before the server starts."""

    def __init__(self) -> None:
        self._serving = True
        self._final = False
        self._changed = asyncio.Event()

    @property
    def serving(self) -> bool:
        return self._serving

    def set(self, serving: bool) -> None:
        """Set the status, and send it to all watchers. Without effect after `shut`."""
        if serving != self._serving and not self._final:
            self._serving = serving
            self._changed.set()
            self._changed = asyncio.Event()

    def shut(self) -> None:
        """Set NOT_SERVING for good."""
        self.set(False)
        self._final = True

    async def changes(self, service: str) -> AsyncIterator[pb.HealthCheckResponse]:
        """Yield the status now, and after each change. Never ends."""
        while True:
            changed = self._changed  # taken before the status is read: no change falls between the two
            yield self.status(service)
            await changed.wait()

    def status(self, service: str) -> pb.HealthCheckResponse:
        if service not in SERVICES:
            return pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN)
        serving, not_serving = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING
        return pb.HealthCheckResponse(status=serving if self._serving else not_serving)

    async def Check(self, request: pb.HealthCheckRequest, context: "grpc.aio.ServicerContext[Any, Any]") -> object:
        if request.service not in SERVICES:
            import grpc

            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r} here")
        return self.status(request.service)

    async def List(self, request: object, context: object) -> object:
        """Only newer releases of grpcio-health-checking have this method in their table."""
        return pb.HealthListResponse(statuses={service: self.status(service) for service in SERVICES})

    async def Watch(self, request: pb.HealthCheckRequest, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        async for status in self.changes(request.service):
            await context.write(status)

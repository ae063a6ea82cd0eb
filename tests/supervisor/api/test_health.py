"""grpc.health.v1 as clients see it."""

from pathlib import Path

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]

from supervisor.api import health
from tests.supervisor.api.rig import Rig, refused, run


def test_health_follows_the_node_for_every_watcher(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
        watchers = [rig.health.Watch(health_pb2.HealthCheckRequest(service=name)) for name in health.SERVICES]
        leaving = rig.health.Watch(health_pb2.HealthCheckRequest())
        for watcher in (*watchers, leaving):
            assert (await watcher.read()).status == serving
        leaving.cancel()
        for expected in (not_serving, serving):
            rig.server.health.set(expected == serving)
            for name, watcher in zip(health.SERVICES, watchers, strict=True):
                assert (await watcher.read()).status == expected
                assert (await rig.health.Check(health_pb2.HealthCheckRequest(service=name))).status == expected
        rig.server.health.shut()
        rig.server.health.set(True)
        assert (await rig.health.Check(health_pb2.HealthCheckRequest())).status == not_serving

    run(tmp_path, test)


def test_health_of_a_service_that_is_not_here_is_not_found(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        refusal = await refused(rig.health.Check(health_pb2.HealthCheckRequest(service="nope")))
        assert refusal.code() is grpc.StatusCode.NOT_FOUND
        unknown = await rig.health.Watch(health_pb2.HealthCheckRequest(service="nope")).read()
        assert unknown.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

    run(tmp_path, test)

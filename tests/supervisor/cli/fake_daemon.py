"""A stand-in for the daemon's sockets: the real service table, canned answers, and a record of what was asked."""

import faulthandler
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import details, table
from supervisor.api.client import Client
from supervisor.model.errors import ExitdError, NoSuchContainer
from tests.supervisor.cli.ttrpc_front import Front

ID = "c0ffee" + "0" * 58
AT = Timestamp(seconds=1_700_000_004)
LIMIT_SECONDS = 10


def container(**fields: Any) -> pb.Container:
    spec = fields.pop("spec", None) or pb.ContainerSpec(name="web", args=["sh", "-c", "exit 7"], runtime="runc")
    return pb.Container(id=ID, spec=spec, run=1, created_at=AT, **fields)


def exit_of(**fields: Any) -> pb.Exit:
    given: dict[str, Any] = {"name": "web", "run": 1, "source": "record", "reason": "self", "at": AT} | fields
    return pb.Exit(container_id=ID, **given)


class FakeDaemon:
    """Every answer is an attribute of `answers`, a function of the request; it may raise an ExitdError. `doors`: what
    it can be asked over; the last one is what its own client takes."""

    def __init__(self, directory: Path, *doors: str) -> None:
        self.asked: list[Any] = []
        self.metadata: dict[str, str] = {}
        self.started = threading.Event()
        self.killed = threading.Event()
        self.exit = exit_of(kind="exited", code=7)
        self.answers = SimpleNamespace(
            CreateContainer=lambda request: pb.CreateContainerReply(container=container(spec=request.spec)),
            Start=self._start,
            Stop=lambda _: pb.StopReply(),
            Kill=self._kill,
            Restart=lambda _: pb.RestartReply(),
            Pause=lambda _: pb.PauseReply(),
            Resume=lambda _: pb.ResumeReply(),
            Remove=lambda _: pb.RemoveReply(),
            List=lambda _: pb.ListReply(containers=[container(phase=pb.PHASE_EXITED, exit=self.exit)]),
            Inspect=lambda _: pb.InspectReply(container=container(phase=pb.PHASE_EXITED, exit=self.exit)),
            Pids=lambda _: pb.PidsReply(),
            Wait=self._wait,
            Events=lambda _: iter(()),
            Exits=lambda _: iter([pb.ExitsReply(exit=self.exit)]),
            Logs=self._logs,
            DiskUsage=lambda _: pb.DiskUsageReply(),
            Metrics=lambda _: pb.MetricsReply(text="# HELP exitd_ready Ready.\nexitd_ready 1\n"),
            Version=lambda _: pb.VersionReply(version="9.9", api="exitd.v1", python="3.11.2"),
            Info=lambda _: pb.InfoReply(
                version="9.9",
                evidence={"record": True, "pidfd": False},
                configuration=[
                    pb.Setting(name="root", value="/r", origin="flag"),
                    pb.Setting(name="limits.scratch_mib", value="64", origin="/etc/exitd/config.toml:12"),
                ],
            ),
        )
        self.path = str(directory / "exitd.sock")
        self.ttrpc = str(directory / "exitd.ttrpc")
        self._last = doors[-1] if doors else "grpc"
        self._front = Front(self.ttrpc, self._answer) if "ttrpc" in doors else None
        self._server = self._serve() if "grpc" in doors or not doors else None

    def stop(self) -> None:
        if self._server is not None:
            # With no grace it waits without a limit, as a thread pool does.
            if not self._server.stop(0).wait(LIMIT_SECONDS):
                faulthandler.dump_traceback(all_threads=True)
                raise AssertionError(f"gRPC's server has not ended in {LIMIT_SECONDS} s; every thread's stack is above")
            self._workers.shutdown(wait=False)
        if self._front is not None:
            self._front.stop()

    def client(self) -> Client:
        return Client(self.path, self.ttrpc if self._last == "ttrpc" else None)

    def _serve(self) -> grpc.Server:
        self._workers = futures.ThreadPoolExecutor(8)
        server = grpc.server(self._workers)
        handlers = {method.name: self._handler(method) for method in table.EXITD.methods}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(table.EXITD.full_name, handlers),))
        server.add_insecure_port(f"unix:{self.path}")
        server.start()
        return server

    def _handler(self, method: MethodDescriptor) -> Any:
        kinds = ("stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming))
        request, reply = table.classes(method)
        return getattr(grpc, f"{'_'.join(kinds)}_rpc_method_handler")(
            self._door(method.name, method.server_streaming),
            request_deserializer=request.FromString,
            response_serializer=reply.SerializeToString,
        )

    def _answer(self, name: str, request: Any) -> Any:
        self.asked.append(request)
        return getattr(self.answers, name)(request)

    def asked_for(self, kind: type) -> list[Any]:
        return [request for request in self.asked if isinstance(request, kind)]

    def _start(self, _: pb.StartRequest) -> pb.StartReply:
        self.started.set()
        return pb.StartReply()

    def _kill(self, _: pb.KillRequest) -> pb.KillReply:
        self.killed.set()
        return pb.KillReply()

    def _wait(self, _: pb.WaitRequest) -> pb.WaitReply:
        assert self.started.wait(LIMIT_SECONDS)
        return pb.WaitReply(exit=self.exit)

    def _logs(self, request: pb.LogsRequest) -> Iterator[pb.LogsReply]:
        if request.follow:
            assert self.started.wait(LIMIT_SECONDS)
        yield pb.LogsReply(data=b"out\n", stream="stdout", time=AT)
        yield pb.LogsReply(data=b"err\n", stream="stderr", time=AT)

    def _door(self, name: str, streaming: bool) -> Callable[[Any, grpc.ServicerContext], Any]:
        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            self.metadata = {key: str(value) for key, value in context.invocation_metadata()}
            try:
                return self._answer(name, request)
            except ExitdError as error:
                refuse(context, error)

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                yield from self._answer(name, request)
            except ExitdError as error:
                refuse(context, error)

        return stream if streaming else unary


def refuse(context: grpc.ServicerContext, error: ExitdError) -> None:
    refusal = details.refusal(error)
    status = next(one for one in grpc.StatusCode if one.value[0] == refusal.code)
    context.set_trailing_metadata(((details.KEY, refusal.details),))
    context.abort(status, refusal.text)


def nobody(_: object) -> Any:
    """An answer: there is no such container."""
    raise NoSuchContainer("no container 'web'; exitctl ps -a lists them")

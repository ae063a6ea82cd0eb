"""Probes and hooks between messages and facts. Pure."""

from protos.exitd.v1 import exitd_pb2 as pb
from shim.patterns import LatePattern
from supervisor.api.checks import health_message
from supervisor.api.values import bad
from supervisor.model.addresses import address
from supervisor.model.errors import BadRequest
from supervisor.model.health import Health, has_started, is_ready
from supervisor.model.values import (
    MAX_NS,
    MIN_NS,
    NO_HOOKS,
    NO_PROBES,
    RETRIES_MAX,
    SECOND_NS,
    CheckKind,
    Container,
    GrpcTarget,
    HealthSpec,
    HealthStatus,
    HookAction,
    Hooks,
    HttpTarget,
    OnUnhealthy,
    Probes,
    TcpTarget,
)

PERIOD_NS, TIMEOUT_NS, FAILURES = 10 * SECOND_NS, SECOND_NS, 3  # Kubernetes' own
MOST_PORT = 65_535
MOST_GRACE_SECONDS = 2**31 - 1
MOST_HEADERS = 100
MOST_HOOK_SECONDS = 86_400
SERVICE = LatePattern(r"[\x21-\x7e]{0,253}")
PATH = LatePattern(r"[\x21-\x7e]{0,4096}")
HEADER_NAME = LatePattern(r"[-!#$%&'*+.^_`|~0-9A-Za-z]{1,256}")
HEADER_VALUE = LatePattern(r"[\t\x20-\x7e]{0,4096}")


def probes_of(message: pb.ContainerSpec) -> Probes:
    """Return the checked probes. Raises BadRequest."""
    if not message.HasField("probes"):
        return NO_PROBES
    if message.HasField("health"):
        raise BadRequest("probes: `health` is another check of the same container; drop one", field="probes")
    if message.HasField("pod"):
        raise BadRequest("probes: a pause container has none; its members have", field="probes")
    probes = message.probes
    return Probes(*(
        _probe(f"probes.{name}", getattr(probes, name), name) if probes.HasField(name) else None
        for name in ("startup", "liveness", "readiness")
    ))  # fmt: skip


def _probe(field: str, message: pb.ProbeSpec, name: str) -> HealthSpec:
    for part in ("interval_ns", "timeout_ns"):
        value = getattr(message, part)
        if value and not MIN_NS <= value <= MAX_NS:
            raise bad(f"{field}.{part}", str(value), f"0 or {MIN_NS} (1 ms) to {MAX_NS} (a day)")
    if message.initial_delay_ns > MAX_NS:
        raise bad(f"{field}.initial_delay_ns", str(message.initial_delay_ns), f"at most {MAX_NS} (a day)")
    for part in ("successes", "failures"):
        if getattr(message, part) > RETRIES_MAX:
            raise bad(f"{field}.{part}", str(getattr(message, part)), f"at most {RETRIES_MAX}")
    if message.successes > 1 and name != "readiness":
        raise bad(f"{field}.successes", str(message.successes), "1, for any but readiness")
    grace = message.grace_seconds if message.HasField("grace_seconds") else None
    if grace is not None and (name == "readiness" or grace > MOST_GRACE_SECONDS):
        raise bad(f"{field}.grace_seconds", str(grace), f"0 to {MOST_GRACE_SECONDS}, and none for readiness")
    _one_of(field, message, ("args", "tcp", "http", "grpc"))
    return HealthSpec(
        tuple(message.args),
        message.interval_ns or PERIOD_NS,
        message.timeout_ns or TIMEOUT_NS,
        message.failures or FAILURES,
        0,
        OnUnhealthy.NONE if name == "readiness" else OnUnhealthy.END,
        TcpTarget(_host(f"{field}.tcp", message.tcp.host), _port(f"{field}.tcp", message.tcp.port))
        if message.HasField("tcp")
        else None,
        _http(f"{field}.http", message.http) if message.HasField("http") else None,
        message.successes or 1,
        message.initial_delay_ns,
        grace,
        _grpc(f"{field}.grpc", message.grpc) if message.HasField("grpc") else None,
    )


def hooks_of(message: pb.ContainerSpec) -> Hooks:
    """Return the checked hooks. Raises BadRequest."""
    if not message.HasField("hooks"):
        return NO_HOOKS
    if message.HasField("pod"):
        raise BadRequest("hooks: a pause container has none; its members have", field="hooks")
    hooks = message.hooks
    return Hooks(
        _hook("hooks.post_start", hooks.post_start) if hooks.HasField("post_start") else None,
        _hook("hooks.pre_stop", hooks.pre_stop) if hooks.HasField("pre_stop") else None,
    )


def _hook(field: str, message: pb.HookSpec) -> HookAction:
    given = [bool(message.args), message.HasField("http")]
    if sum(given) > 1 or (any(given) and message.sleep_seconds):
        raise BadRequest(f"{field}: one of args, http, sleep_seconds", field=field)
    if message.args and not message.args[0]:
        raise bad(f"{field}.args", "", "a command")
    if message.sleep_seconds > MOST_HOOK_SECONDS:
        raise bad(f"{field}.sleep_seconds", str(message.sleep_seconds), f"at most {MOST_HOOK_SECONDS}")
    http = _http(f"{field}.http", message.http) if message.HasField("http") else None
    return HookAction(tuple(message.args), http, message.sleep_seconds)


def _one_of(field: str, message: pb.ProbeSpec, names: tuple[str, ...]) -> None:
    given = [bool(message.args), *(message.HasField(name) for name in ("tcp", "http", "grpc"))]
    if sum(given) != 1:
        raise BadRequest(f"{field}: one of {', '.join(names)}, and no two", field=field)
    if message.args and not message.args[0]:
        raise bad(f"{field}.args", "", "a command")


def _http(field: str, message: pb.HttpTarget) -> HttpTarget:
    if not PATH.fullmatch(message.path) or (message.path and not message.path.startswith("/")):
        raise bad(f"{field}.path", message.path, "a path from / on, in printable ASCII, without spaces")
    if len(message.headers) > MOST_HEADERS:
        raise BadRequest(f"{field}.headers: at most {MOST_HEADERS}", field=f"{field}.headers")
    for each in message.headers:
        if not HEADER_NAME.fullmatch(each.name) or not HEADER_VALUE.fullmatch(each.value):
            raise bad(f"{field}.headers", f"{each.name}: {each.value}", "a header of HTTP, in ASCII, on one line")
    headers = tuple((each.name, each.value) for each in message.headers)
    host, port = _host(field, message.host), _port(field, message.port)
    return HttpTarget(host, port, message.path or "/", message.tls, headers)


def _grpc(field: str, message: pb.GrpcTarget) -> GrpcTarget:
    if not SERVICE.fullmatch(message.service):
        raise bad(f"{field}.service", message.service[:100], "at most 253 characters of ASCII, without spaces")
    return GrpcTarget(_port(field, message.port), message.service, _host(field, message.host))


def _host(field: str, host: str) -> str:
    try:
        return address(host) if host else ""
    except ValueError as error:
        raise bad(f"{field}.host", host, "an address, or none for the container's own loopback") from error


def _port(field: str, port: int) -> int:
    if not 1 <= port <= MOST_PORT:
        raise bad(f"{field}.port", str(port), f"1 to {MOST_PORT}")
    return port


# -- and back


def probes_message(probes: Probes) -> pb.ProbesSpec | None:
    if probes == NO_PROBES:
        return None
    return pb.ProbesSpec(
        startup=_probe_message(probes.startup),
        liveness=_probe_message(probes.liveness),
        readiness=_probe_message(probes.readiness),
    )


def _probe_message(spec: HealthSpec | None) -> pb.ProbeSpec | None:
    if spec is None:
        return None
    return pb.ProbeSpec(
        args=spec.args,
        tcp=pb.TcpTarget(host=spec.tcp.host, port=spec.tcp.port) if spec.tcp is not None else None,
        http=_http_message(spec.http),
        grpc=pb.GrpcTarget(host=spec.grpc.host, port=spec.grpc.port, service=spec.grpc.service)
        if spec.grpc is not None
        else None,
        initial_delay_ns=spec.first_ns or 0,
        interval_ns=spec.interval_ns,
        timeout_ns=spec.timeout_ns,
        successes=spec.successes,
        failures=spec.retries,
        grace_seconds=spec.grace_seconds,
    )


def _http_message(target: HttpTarget | None) -> pb.HttpTarget | None:
    if target is None:
        return None
    headers = [pb.HttpHeader(name=name, value=value) for name, value in target.headers]
    return pb.HttpTarget(host=target.host, port=target.port, path=target.path, tls=target.tls, headers=headers)


def hooks_message(hooks: Hooks) -> pb.HooksSpec | None:
    if hooks == NO_HOOKS:
        return None
    return pb.HooksSpec(post_start=_hook_message(hooks.post_start), pre_stop=_hook_message(hooks.pre_stop))


def _hook_message(hook: HookAction | None) -> pb.HookSpec | None:
    if hook is None:
        return None
    return pb.HookSpec(args=hook.args, http=_http_message(hook.http), sleep_seconds=hook.sleep_seconds)


def states_message(container: Container, seen: dict[CheckKind, Health]) -> pb.ProbeStates | None:
    """Return what the probes and hooks of the current run have come to, with what this daemon has seen of them."""
    spec, marks = container.spec, container.probes
    if spec.probes == NO_PROBES and spec.hooks == NO_HOOKS:
        return None

    def health(kind: CheckKind, given: HealthSpec | None, status: HealthStatus) -> pb.Health | None:
        return health_message(status if given is not None else None, seen.get(kind))

    return pb.ProbeStates(
        started=has_started(container),
        ready=is_ready(container),
        startup=health(CheckKind.STARTUP, spec.probes.startup, marks.startup),
        liveness=health(CheckKind.LIVENESS, spec.probes.liveness, marks.liveness),
        readiness=health(CheckKind.READINESS, spec.probes.readiness, marks.readiness),
    )

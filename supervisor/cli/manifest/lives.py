"""The probes and hooks of a container. Pure.

Source: core/v1 Probe, ProbeHandler, Lifecycle and LifecycleHandler (types.go).
"""

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.manifest.fields import Field, Notes, text_of
from supervisor.cli.manifest.marks import MarkedNumber
from supervisor.model.addresses import address

SECOND_NS = 10**9
PERIOD, TIMEOUT, FAILURES, SUCCESSES = 10, 1, 3, 1
HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
HOOKS = ("exec", "httpGet", "tcpSocket", "sleep")


def probes_of(container: Field, notes: Notes) -> pb.ProbesSpec | None:
    """Return the probes that it has; None: none."""
    names = (("startup", "startupProbe"), ("liveness", "livenessProbe"), ("readiness", "readinessProbe"))
    found = {name: _probe(field, container, name, notes) for name, word in names if (field := container.get(word))}
    return pb.ProbesSpec(**found) if found else None


def _probe(probe: Field, container: Field, name: str, notes: Notes) -> pb.ProbeSpec:
    def number(word: str, otherwise: int) -> int:
        field = probe.get(word)
        return field.integer() if field is not None else otherwise

    successes, grace = probe.get("successThreshold"), probe.get("terminationGracePeriodSeconds")
    if successes is not None and successes.integer() != 1 and name != "readiness":
        successes.refuse(notes, "must be 1, but for a readinessProbe")
    if grace is not None and name == "readiness":
        grace.refuse(notes, "a readinessProbe ends nothing; drop it")
    found = pb.ProbeSpec(
        initial_delay_ns=number("initialDelaySeconds", 0) * SECOND_NS,
        interval_ns=number("periodSeconds", PERIOD) * SECOND_NS,
        timeout_ns=number("timeoutSeconds", TIMEOUT) * SECOND_NS,
        successes=number("successThreshold", SUCCESSES),
        failures=number("failureThreshold", FAILURES),
        grace_seconds=grace.integer() if grace is not None else None,
    )
    handler = _only(probe, HANDLERS, notes)
    if handler is not None:
        kind, field = handler
        if kind == "exec":
            found.args.extend(_command(field, notes))
        elif kind == "httpGet":
            found.http.CopyFrom(_http(field, container, notes))
        elif kind == "tcpSocket":
            found.tcp.CopyFrom(pb.TcpTarget(host=_host(field, notes), port=_port(field, container, notes)))
        elif kind == "grpc":
            port = field.get("port")
            assert port is not None
            found.grpc.CopyFrom(pb.GrpcTarget(port=port.integer(), service=text_of(field.get("service"))))
    return found


def hooks_of(container: Field, grace_seconds: int, notes: Notes) -> pb.HooksSpec | None:
    """Return the hooks that it has; None: none."""
    lifecycle = container.get("lifecycle")
    found = {}
    for name, word in (("post_start", "postStart"), ("pre_stop", "preStop")):
        field = lifecycle.get(word) if lifecycle is not None else None
        if field is not None:
            found[name] = _hook(field, container, grace_seconds if name == "pre_stop" else None, notes)
    return pb.HooksSpec(**found) if found else None


def _hook(hook: Field, container: Field, grace_seconds: int | None, notes: Notes) -> pb.HookSpec:
    found, handler = pb.HookSpec(), _only(hook, HOOKS, notes)
    if handler is not None:
        kind, field = handler
        if kind == "exec":
            found.args.extend(_command(field, notes))
        elif kind == "httpGet":
            found.http.CopyFrom(_http(field, container, notes))
        elif kind == "sleep":
            seconds = field.get("seconds")
            assert seconds is not None
            if grace_seconds is not None and seconds.integer() > grace_seconds:
                seconds.refuse(notes, f"is more than the whole grace period, {grace_seconds} s")
            found.sleep_seconds = seconds.integer()
    return found


def _only(field: Field, words: tuple[str, ...], notes: Notes) -> tuple[str, Field] | None:
    found = [(word, part) for word in words if (part := field.get(word)) is not None]
    if len(found) != 1:
        field.refuse(notes, f"has one of {', '.join(words)}")
        return None
    return found[0]


def _command(field: Field, notes: Notes) -> tuple[str, ...]:
    command = field.get("command")
    words = command.texts() if command is not None else ()
    if not words or not words[0]:
        field.refuse(notes, "which command? It has none")
    return words


def _http(field: Field, container: Field, notes: Notes) -> pb.HttpTarget:
    headers = field.get("httpHeaders")
    given = headers.items() if headers is not None else ()
    return pb.HttpTarget(
        host=_host(field, notes),
        port=_port(field, container, notes),
        path=text_of(field.get("path"), "/") or "/",
        tls=text_of(field.get("scheme"), "HTTP") == "HTTPS",
        headers=[pb.HttpHeader(name=text_of(each.get("name")), value=text_of(each.get("value"))) for each in given],
    )


def _host(field: Field, notes: Notes) -> str:
    """No names: they would be looked up where the probe is made, outside of the pod, and for any time."""
    host = field.get("host")
    if host is None or host.text() in ("", "localhost"):
        return ""
    try:
        return address(host.text())
    except ValueError:
        host.refuse(notes, f"{host.text()[:100]!r} is no address; drop it to ask the container itself")
        return ""


def _port(field: Field, container: Field, notes: Notes) -> int:
    """Return the number, also of a port that the container has named."""
    port = field.get("port")
    assert port is not None
    if isinstance(port.node.value, MarkedNumber):
        return port.integer(1, 65535)
    ports, known = container.get("ports"), {}
    for each in ports.items() if ports is not None else ():
        name, number = each.get("name"), each.get("containerPort")
        if name is not None and number is not None:
            known[name.text()] = number.integer()
    if port.text() not in known:
        port.refuse(
            notes, f"the container has no port of the name {port.text()!r}; it has {', '.join(known) or 'none'}"
        )
    return known.get(port.text(), 0)

"""Merges what a caller asked for with what the image says. Pure.

| of the image | counts |
|---|---|
| Entrypoint | unless the caller gives one, even an empty one |
| Cmd | unless the caller gives words of a command, or an entrypoint |
| Env, Labels | name by name, unless the caller sets that name |
| Volumes | unless the caller mounts something there |
| WorkingDir, User, StopSignal | unless the caller gives one |
| Healthcheck | field by field, unless the caller gives that one; as a whole not if the caller wants none |

The rules are docker's and Kubernetes' ("Define a Command and Arguments for a Container").
"""

import posixpath

from shim.frozen import replace
from supervisor.images.facts import ImageDefaults, Resolved
from supervisor.model import parsing, values
from supervisor.model.errors import BadImage, BadRequest
from supervisor.model.values import NO_PROBES, HealthSpec, Mount, Spec

DEFAULT_STOP_SIGNAL = 15


def complete(spec: Spec, found: Resolved | None = None) -> Spec:
    """Return the complete spec. `found` is what its image was resolved to, None for a spec without an image.

    Raises BadRequest when there is no command at all, or the image has a word that the caller replaces; BadImage when
    the image's configuration makes no sense.
    """
    if found is None:
        return replace(
            spec,
            args=ImageDefaults().args(spec.args, spec.entrypoint),
            entrypoint=(),
            entrypoint_words=len(ImageDefaults().first_words(spec.entrypoint)),
            cwd=spec.cwd or "/",
            stop_signal=spec.stop_signal or DEFAULT_STOP_SIGNAL,
            health=_health(spec, None),
        )
    config = found.config
    args = config.args(spec.args, spec.entrypoint)
    if not args or not args[0]:
        raise BadRequest(f"which command? IMAGE {spec.image} has no command; give one after IMAGE", field="args")
    own = () if spec.entrypoint else (*config.entrypoint, *(() if spec.args else config.cmd))
    if not {word for word, _ in spec.secrets.words}.isdisjoint(own):
        raise BadRequest(f"IMAGE {spec.image} has a word that is shown in a secret's place", field="secrets.words")
    return replace(
        spec,
        args=args,
        entrypoint=(),
        entrypoint_words=len(config.first_words(spec.entrypoint)),
        env=(*_env(config, spec.image), *spec.env),
        cwd=spec.cwd or posixpath.join("/", config.workdir),
        user=spec.user or config.user,
        labels=tuple(sorted({**dict(config.labels), **dict(spec.labels)}.items())),
        stop_signal=spec.stop_signal or _stop_signal(config, spec.image),
        image_id=found.image,
        layers=found.lower,
        mounts=(*spec.mounts, *_volumes(config, spec)),
        health=_health(spec, config.health),
    )


def _volumes(config: ImageDefaults, spec: Spec) -> tuple[Mount, ...]:
    taken = {posixpath.normpath(mount.destination) for mount in spec.mounts}
    return tuple(Mount("", place, anonymous=True) for place in config.volumes if place not in taken)


def _env(config: ImageDefaults, word: str) -> tuple[str, ...]:
    for index, text in enumerate(config.env):
        if text.find("=") < 1:
            raise BadImage(f"IMAGE {word}: config.Env[{index}]: {text[:80]!r} is not NAME=VALUE", field="config.Env")
    return config.env


def _health(spec: Spec, of_image: HealthSpec | None) -> HealthSpec | None:
    """Return the complete health check; None: there is none. Probes stand in its place, as in Kubernetes, which never
    looks at an image's."""
    if spec.probes != NO_PROBES:
        return None
    own, under = spec.health or HealthSpec(), of_image or HealthSpec()
    args = own.args or under.args
    if own.is_off or (spec.health is None and not args):
        return None
    if not args:
        raise BadRequest("health.args: which command? The image has no health check", field="health.args")
    return HealthSpec(
        args,
        own.interval_ns or under.interval_ns or values.INTERVAL_NS,
        own.timeout_ns or under.timeout_ns or values.TIMEOUT_NS,
        own.retries or under.retries or values.RETRIES,
        own.start_period_ns or under.start_period_ns,
        own.on_failure,
    )


def _stop_signal(config: ImageDefaults, word: str) -> int:
    if not config.stop_signal:
        return DEFAULT_STOP_SIGNAL
    number = parsing.number_of(config.stop_signal)
    if number is None:
        raise BadImage(
            f"IMAGE {word}: config.StopSignal: {config.stop_signal[:80]!r} is no signal; say one with --stop-signal",
            field="config.StopSignal",
        )
    return number

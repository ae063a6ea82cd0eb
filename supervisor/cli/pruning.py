"""`container prune`, `image prune`, `system prune`: what is not used goes; each prints
what went and how much that was."""

from collections.abc import Iterable

import click

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.client import Client
from supervisor.cli import imageshape, parse, spoken
from supervisor.cli.app import complain, exit_code, now_ns
from supervisor.model.errors import BadRequest, ExitdError, NoSuchContainer, NoSuchVolume, VolumeInUse, WrongState

OVER = (pb.PHASE_EXITED, pb.PHASE_CREATED)
KEYS = "until=TIME, label=KEY[=VALUE], label!=KEY[=VALUE]"


@frozen
class PruneFilter:
    """Which of the unused ones go: those made before a time, with all these labels and none of the others."""

    before_ns: int | None = None
    labels: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def fits(self, made_ns: int | None, labels: dict[str, str]) -> bool:
        """`made_ns` None: not known, which is before any time."""
        if self.before_ns is not None and made_ns is not None and made_ns >= self.before_ns:
            return False
        return all(_has(labels, each) for each in self.labels) and not any(_has(labels, each) for each in self.without)


def filter_of(words: Iterable[str], now: int) -> PruneFilter:
    """Raises BadRequest."""
    before, labels, without = None, [], []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise BadRequest(f"--filter {word!r}: allowed is {KEYS}")
        match key:
            case "until":
                before = parse.moment_ns(value, now)
            case "label":
                labels.append(value)
            case "label!":
                without.append(value)
            case _:
                raise BadRequest(f"--filter {word!r}: allowed is {KEYS}")
    return PruneFilter(before, tuple(labels), tuple(without))


def _has(labels: dict[str, str], wanted: str) -> bool:
    key, equals, value = wanted.partition("=")
    return key in labels and (not equals or labels[key] == value)


def images(client: Client, wanted: PruneFilter, *, all_of_them: bool) -> pb.PruneImagesReply:
    """Remove the images that no container uses: those without a name, or all."""
    ids = []
    for each in client.images():
        if each.users or (each.names and not all_of_them):
            continue
        labels = imageshape.labels_of(client.inspect_image(each.id)) if wanted.labels or wanted.without else {}
        if wanted.fits(imageshape.created_ns(each.created, now_ns()), labels):
            ids.append(each.id)
    return client.prune_images(ids, all_of_them=all_of_them) if ids else pb.PruneImagesReply()


def containers(client: Client, wanted: PruneFilter) -> tuple[list[str], int, int]:
    """Remove those that do not run, but for pods and tasks of containerd's. Return their ids, the bytes that went with
    them, and the exit code."""
    gone, freed, worst = [], 0, 0
    those = [each for each in client.list(all_of_them=True) if is_over(each) and _fits(each, wanted)]
    if not those:
        return [], 0, 0
    sizes = {each.id: each.layer_bytes + each.log_bytes for each in client.disk_usage([c.id for c in those]).containers}
    for each in those:
        try:
            client.remove(each.id, force=False)
        except (NoSuchContainer, WrongState):
            continue  # removed, or started again, since the list was made
        except ExitdError as error:
            complain(str(error))
            worst = max(worst, exit_code(error))
        else:
            gone.append(each.id)
            freed += sizes.get(each.id, 0)
    return gone, freed, worst


def volumes(client: Client) -> tuple[list[str], int]:
    """Remove the anonymous ones that no container mounts. Return their names, and the exit code."""
    gone, worst = [], 0
    for each in client.volumes():
        if not each.anonymous or each.containers:
            continue
        try:
            client.remove_volume(each.name)
        except (NoSuchVolume, VolumeInUse):
            continue
        except ExitdError as error:
            complain(str(error))
            worst = max(worst, exit_code(error))
        else:
            gone.append(each.name)
    return gone, worst


def confirm(what: str, *, force: bool) -> None:
    """Ask, unless it is forced. A no ends the command, and it has worked: nothing was to be done."""
    if not force and not click.confirm(f"{what}\nGo on?", err=True):
        click.get_current_context().exit(0)


def show_images(reply: pb.PruneImagesReply) -> None:
    if reply.ids:
        print("Deleted Images:")
    print("".join(f"untagged: {name}\n" for name in reply.names), end="")
    print("".join(f"deleted: {id}\n" for id in reply.ids), end="")


def show_space(size_bytes: int) -> None:
    print(f"Total reclaimed space: {spoken.size(size_bytes)}")


def is_over(container: pb.Container) -> bool:
    """Return whether it does not run, and is exitd's own to remove: no pod, none of a pod, which goes with it, and no
    task of containerd's."""
    in_pod = container.spec.HasField("pod") or container.spec.sandbox
    return container.phase in OVER and not in_pod and not container.of_containerd


def _fits(container: pb.Container, wanted: PruneFilter) -> bool:
    return wanted.fits(container.created_at.ToNanoseconds(), dict(container.spec.labels))

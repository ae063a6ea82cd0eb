"""What a container says of its own address is known when a run begins, and is another one in the next. Pure."""

from collections.abc import Iterable

from shim.frozen import replace
from supervisor.model import networks
from supervisor.model.networks import Attached
from supervisor.model.secrets import mounted_file
from supervisor.model.values import LIVE, Container, Mount, Spec

LOOPBACK = "127.0.0.1"


def as_run(container: Container) -> Spec:
    """Return the spec as the container's run has it; while there is none its address is empty."""
    without = LOOPBACK if container.phase in LIVE else ""
    return with_address(container.spec, container.networks, without=without)


def with_address(spec: Spec, attached: Iterable[Attached], *, without: str = LOOPBACK) -> Spec:
    """Return the spec with the first address that the run has, or `without`, its loopback's, wherever its mark stands:
    in the command line, in variables and in files."""
    mark = spec.address_mark
    if not mark:
        return spec
    address = next(iter(networks.addresses(attached)), without)

    def put(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(text.replace(mark, address) for text in texts)

    words = tuple((shown.replace(mark, address), used.replace(mark, address)) for shown, used in spec.secrets.words)
    return replace(
        spec,
        args=put(spec.args),
        env=put(spec.env),
        secrets=replace(spec.secrets, env=put(spec.secrets.env), words=words),
        mounts=tuple(_in_files(mount, mark.encode(), address.encode()) for mount in spec.mounts),
    )


def _in_files(mount: Mount, mark: bytes, address: bytes) -> Mount:
    files = tuple(
        mounted_file(file.path, data.replace(mark, address), file.mode) if mark in (data := file.data) else file
        for file in mount.files
    )
    return replace(mount, files=files)

"""Waiting for an image: a message after a while, and what an interruption means."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.cli.app import complain
from supervisor.images import reference
from supervisor.model.errors import NoSuchImage, ToolFailed, ToolMissing

FETCHED = ("docker://", "oci:", "docker-archive:")
QUIET_SECONDS = 2.0


def fetch_image(client: Client, spec: pb.ContainerSpec, *, anew: bool = False) -> None:
    """Let exitd bring the image into its store, unless it is there, or `anew`, and put its id into the spec. This comes
    before the container is created, so that an interrupted pull leaves no container behind."""
    if spec.image.startswith(FETCHED):
        with patience(f"fetching {spec.image}"):
            spec.image_id = client.pull_image(spec.image, if_missing=not anew).id


def is_plain(image: str) -> bool:
    """Return whether it is a name of exitd's own store that may be a registry's as well."""
    if not image or image.startswith(FETCHED):
        return False
    wanted = reference.parse(image)
    return isinstance(wanted, reference.Stored) and wanted.name is not None


def fetch_missing(client: Client, spec: pb.ContainerSpec, missing: NoSuchImage) -> None:
    """Let exitd pull the image that its store has not, `missing`, from a registry, and put its id into the spec, which
    keeps its name as it was written. Raises NoSuchImage, which says both, and what a pull raises."""
    word = f"docker://{reference.parse_name(spec.image)}"
    try:
        with patience(f"pulling {word}"):
            spec.image_id = client.pull_image(word, if_missing=True).id
    except ToolMissing as error:
        raise NoSuchImage(f"{missing}; and none can be pulled: {error}; exitctl image load FILE needs none") from error
    except ToolFailed as error:
        raise NoSuchImage(f"{missing}; and {error}") from error


@contextmanager
def patience(what: str, *, quiet: bool = False) -> Iterator[None]:
    """For a call that reads a whole image. Prints a message if it takes more than a moment; `quiet`: only when
    interrupted."""
    timer = threading.Timer(QUIET_SECONDS, complain, (f"{what}; this may take minutes",))
    timer.daemon = True
    if not quiet:
        timer.start()
    try:
        yield
    except KeyboardInterrupt:
        complain(f"{what}: exitd goes on with it; `exitctl image ls` shows the image once it is there")
        raise
    finally:
        timer.cancel()

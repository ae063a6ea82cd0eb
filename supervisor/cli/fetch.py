"""Waiting for an image: a message after a while, and what an interruption means."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.cli.app import complain

FETCHED = ("docker://", "oci:", "docker-archive:")
QUIET_SECONDS = 2.0


def fetch_image(client: Client, spec: pb.ContainerSpec, *, anew: bool = False) -> None:
    """Let exitd bring the image into its store, unless it is there, or `anew`, and put its id into the spec. This comes
    before the container is created, so that an interrupted pull leaves no container behind."""
    if spec.image.startswith(FETCHED):
        with patience(f"fetching {spec.image}"):
            spec.image_id = client.pull_image(spec.image, if_missing=not anew).id


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

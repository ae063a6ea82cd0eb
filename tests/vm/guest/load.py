"""A load of exits, creates, removes and image loads until the power fails. What exitd has answered goes to the host at
once, a line of JSON each: load.py NAME PORT

{"exit": name, "code": N}    a Wait was answered
{"event": seq, "of": name}   the event of an exit was read
{"created": name}, {"removed": name}
{"image": id}, {"unimage": id}
"""

import contextlib
import hashlib
import io
import itertools
import json
import pathlib
import random
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable
from typing import BinaryIO

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, ttrpc_beside

SOCKET = "/run/exitd/exitd.sock"
WAIT_SECONDS = 600.0
MAKERS = 2
LAYER_BYTES = 1 << 20

Say = Callable[..., None]


def saying(out: BinaryIO) -> Say:
    lock = threading.Lock()

    def say(**what: object) -> None:
        with lock:
            out.write(json.dumps(what).encode() + b"\n")
            out.flush()

    return say


def make(name: str, say: Say) -> None:
    with Client(SOCKET, ttrpc_beside(SOCKET)) as client:
        for number in itertools.count(1):
            called, code = f"{name}-{number}", number % 100 + 1
            container = client.create(pb.ContainerSpec(name=called, args=["sh", "-c", f"exit {code}"], rootfs="/")).id
            say(created=called)
            waiting = client.begin_wait(container)
            client.start(container)
            exit_ = waiting.result(WAIT_SECONDS)
            assert exit_ is not None
            say(exit=called, code=exit_.code)
            if number % 3:
                client.remove(container, force=False)
                say(removed=called)


def read_events(say: Say) -> None:
    with Client(SOCKET, ttrpc_beside(SOCKET)) as client:
        for reply in client.events(pb.EventsRequest(filters=["type=exit"])):
            if reply.HasField("event"):
                say(event=reply.event.seq, of=reply.event.name)


def load_images(name: str, say: Say) -> None:
    with Client(SOCKET, ttrpc_beside(SOCKET)) as client:
        for number in itertools.count(1):
            with tempfile.TemporaryDirectory() as scratch:
                archive = pathlib.Path(scratch, "image.tar")
                archive.write_bytes(docker_archive(f"{name}-{number}"))
                (image,) = client.load_image(f"docker-archive:{archive}")
            say(image=image.id)
            if number % 2:
                client.remove_image(image.id)
                say(unimage=image.id)


def docker_archive(name: str) -> bytes:
    """One layer of noise, which is another one for each name."""
    layer = tarred({name: random.Random(name).randbytes(LAYER_BYTES)})
    digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [digest]}}
    manifest = [{"Config": "config.json", "RepoTags": [f"{name}:latest"], "Layers": ["layer.tar"]}]
    files = {"config.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    return tarred({**files, "layer.tar": layer})


def tarred(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def main(name: str, out: BinaryIO) -> None:
    say = saying(out)
    work: list[Callable[[], None]] = [lambda: read_events(say), lambda: load_images(name, say)]
    work += [lambda maker=maker: make(f"{name}-{maker}", say) for maker in range(MAKERS)]  # type: ignore[misc]
    threads = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    with contextlib.suppress(KeyboardInterrupt):
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    with open(sys.argv[2], "wb") as port:
        main(sys.argv[1], port)

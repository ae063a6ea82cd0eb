"""Images of a few of the host's programs, and a registry that serves a layout of them."""

import contextlib
import functools
import http.server
import io
import json
import pathlib
import tarfile
import tempfile
import threading
from collections.abc import Iterator

from protos.exitd.v1 import exitd_pb2 as pb
from shim import programs
from supervisor.api.client import Client
from tests.supervisor.images.building import Json, Made, docker_archive, entry, folder, tar, write_layout
from tests.system import tinyroot
from tests.system.daemons import Daemon, remove_all
from tests.system.waits import until

PROGRAMS = ("sh", "true", "sleep", "cat", "id", "ls", "stat", "readlink", "mkdir", "touch", "rm")
PASSWD = b"root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n"
GROUP = b"root:x:0:\napp:x:1000:\nextra:x:2000:app\n"
ENTRY = b"""trap 'echo usr1; exit 11' USR1
echo "$(id -un):$(id -Gn) in $PWD, color $COLOR, asked: $*"
while [ "$1" = stay ]; do sleep 0.01; done
exit ${CODE:-7}
"""
WHAT_APP_SAYS = "app:app extra in /home/app, color blue, asked: {}\n"


@functools.cache
def base_layer() -> bytes:
    """Programs, users, and things for upper layers to hide."""
    with tempfile.TemporaryDirectory() as directory:
        root = tinyroot.make(pathlib.Path(directory), PROGRAMS)
        etc = {"passwd": PASSWD, "group": GROUP}
        for name, text in etc.items():
            (root / "etc").mkdir(exist_ok=True)
            (root / "etc" / name).write_bytes(text)
        for path in ("old/gone", "old/stays", "cache/a", "cache/b/c", "turns"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("base\n")
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(root, ".", filter=_of_root)
        return buffer.getvalue()


def _of_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


MIDDLE = tar(("old/.wh.gone", b""), folder("cache"), ("cache/.wh..wh..opq", b""), ("cache/new", b"middle\n"))
TOP = tar(
    *(folder("home"), folder("home/app", uid=1000, gid=1000), ("entry", ENTRY), (".wh.turns", b"")),
    *(folder("turns"), ("turns/inside", b"top\n"), ("old/stays", b"top\n")),
)


def app() -> Made:
    """Three layers with whiteouts, and a configuration that says all there is to say."""
    says: Json = {
        "Entrypoint": ["/bin/sh", "/entry"],
        "Cmd": ["by", "image"],
        "Env": ["COLOR=blue", "PATH=/bin"],
        "User": "app",
        "WorkingDir": "/home/app",
        "StopSignal": "SIGUSR1",
        "Labels": {"made": "by hand", "tier": "image"},
    }
    return Made([base_layer(), MIDDLE, TOP], says, {"created": "2026-01-02T03:04:05Z"})


def plain(number: int = 0) -> Made:
    """One more layer over the same programs; every number is another image."""
    return Made([base_layer(), tar((f"number{number}", b"%d" % number))], {"Cmd": ["/bin/true"]})


def layout(directory: pathlib.Path, **images: Made) -> pathlib.Path:
    """With a tag for each image."""
    return write_layout(directory, images)


class Registry(http.server.ThreadingHTTPServer):
    """As much of the distribution protocol as a pull needs, for one layout: its tags are the tags of any repository.

    `gate`, if set, is waited for before a layer is served."""

    def __init__(self, layout: pathlib.Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.layout = layout
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def find(self, path: str) -> tuple[bytes, str]:
        """What a GET of the path gives, and its media type. LookupError for what is not there."""
        kind, _, wanted = path.rpartition("/")
        if path == "/v2/":
            return b"{}", "application/json"
        if kind.endswith("/manifests") and not wanted.startswith("sha256:"):
            entries = json.loads((self.layout / "index.json").read_text())["manifests"]
            wanted = {e["annotations"]["org.opencontainers.image.ref.name"]: e["digest"] for e in entries}[wanted]
        data = (self.layout / "blobs" / wanted.replace(":", "/")).read_bytes()
        return data, json.loads(data)["mediaType"] if kind.endswith("/manifests") else "application/octet-stream"


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        try:
            data, kind = self.server.find(self.path)
        except (LookupError, OSError):
            self.send_error(404)
            return
        if len(data) > 100_000:
            self.server.gate.wait(30)
        with contextlib.suppress(ConnectionError):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Not among the output of the tests."""


@contextlib.contextmanager
def registry(layout: pathlib.Path) -> Iterator[Registry]:
    server = Registry(layout)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


def plain_http(directory: pathlib.Path, server: Registry) -> dict[str, str]:
    """The environment of exitd in which skopeo may ask this registry without TLS."""
    file = directory / ".config/containers/registries.conf"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'[[registry]]\nlocation = "{server.host}"\ninsecure = true\n')
    return {"HOME": str(directory)}


def holds(daemon: Daemon) -> dict[str, str]:
    return {path.name: str(path.readlink()) for path in (daemon.root / "images/holds").iterdir()}


def check_store(daemon: Daemon, client: Client) -> None:
    """What is listed is whole, nothing else is kept, and held is what containers stand on."""
    store = daemon.root / "images"
    listed = client.images()
    until(lambda: not list((store / "staging").iterdir()), "something stays in staging")
    rows = {row["id"]: row for row in json.loads((store / "index.json").read_text())["images"]} if listed else {}
    assert rows.keys() == {image.id for image in listed}
    layers = {layer["diff_id"].removeprefix("sha256:") for row in rows.values() for layer in row["layers"]}
    until(lambda: {path.name for path in (store / "layers").iterdir()} == layers, "layers that nobody lists stay")
    blobs = {id.removeprefix("sha256:") for id in rows}
    until(lambda: {path.name for path in (store / "blobs").iterdir()} == blobs, "blobs that nobody lists stay")
    for row in rows.values():
        sizes = [sum(1 for _ in (store / "layers" / layer["diff_id"][7:]).rglob("*")) for layer in row["layers"]]
        assert all(sizes), f"an empty layer: {row}"
    containers = client.list(all_of_them=True)
    assert holds(daemon) == {c.id: c.spec.image_id for c in containers if c.spec.image_id}
    users = {user for image in listed for user in image.users}
    assert users == {c.id for c in containers if c.spec.image_id}


def small(number: int = 0) -> Made:
    """Two layers around exitd's own static program, which a daemon unpacks in few system calls."""
    program = programs.find("exitd-pause").read_bytes()
    below = tar(folder("bin"), (entry("bin/wait", mode=0o755), program), ("etc/old", b"old"), ("etc/number", b"-"))
    return Made([below, tar(("etc/.wh.old", b""), ("etc/number", b"%d" % number))], {"Entrypoint": ["/bin/wait"]})


def clear(daemon: Daemon) -> None:
    """No container and no image; then nothing of them may be left."""
    with daemon.client() as client:
        remove_all(client)
        for image in client.images():
            client.remove_image(image.id)
        check_store(daemon, client)


SMALL_IMAGES = 3


def small_shelf(base: pathlib.Path) -> pathlib.Path:
    """Small images that share a layer: one in each archive, all in the layout."""
    layout(base / "layout", **{f"t{number}": small(number) for number in range(SMALL_IMAGES)})
    for number in range(SMALL_IMAGES):
        (base / f"{number}.tar").write_bytes(docker_archive((small(number), [f"me/small:{number}"])))
    return base


def on(image: str, **fields: object) -> pb.ContainerSpec:
    return pb.ContainerSpec(image=image, **fields)  # type: ignore[arg-type]


def check(daemon: Daemon) -> None:
    """After a kill: what is left of a create is taken back first, in the daemon's own time."""
    with daemon.client() as client:
        check_through(client, daemon)


def check_through(client: Client, daemon: Daemon) -> None:
    until(lambda: _settled(client), "a container does not come to rest")
    check_store(daemon, client)


def _settled(client: Client) -> bool:
    phases = {container.phase for container in client.list(all_of_them=True)}
    return not phases & {pb.PHASE_CREATING, pb.PHASE_REMOVING}

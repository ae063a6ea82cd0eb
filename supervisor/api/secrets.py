"""Files that a mount is made of, and secrets: message to fact, checked, and back without what is secret. Pure."""

from collections.abc import Iterable

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.values import bad
from supervisor.model import bounds
from supervisor.model.errors import BadRequest
from supervisor.model.secrets import DEFAULT_MODE, MountedFile, SecretWords, mounted_file
from supervisor.model.values import Mount

MOST_FILE_MODE = 0o777
MOST_FILES = 1000  # of one mount
MOST_FILE_BYTES = 1 << 20  # of all files of one container: what Kubernetes allows for one object
MOST_PATH = 1024


def files_of(field: str, mount: pb.Mount) -> tuple[MountedFile, ...]:
    """Return the checked files of a mount. Raises BadRequest."""
    if len(mount.files) > MOST_FILES:
        raise BadRequest(
            f"{field}.files: {len(mount.files)} are too many: at most {MOST_FILES}", field=f"{field}.files"
        )
    if mount.single and len(mount.files) != 1:
        raise BadRequest(f"{field}.single: goes with one file", field=f"{field}.single")
    found: dict[str, MountedFile] = {}
    for index, each in enumerate(mount.files):
        place = f"{field}.files[{index}]"
        check_path(f"{place}.path", each.path)
        if each.mode > MOST_FILE_MODE:
            raise bad(f"{place}.mode", f"{each.mode:o}", f"permissions in octal, 0 to {MOST_FILE_MODE:o}")
        if each.path in found:
            raise BadRequest(f"{place}.path {each.path!r}: is there twice", field=f"{place}.path")
        found[each.path] = mounted_file(each.path, each.content, each.mode or DEFAULT_MODE)
    for path in found:
        parts = path.split("/")
        if above := next((up for end in range(1, len(parts)) if (up := "/".join(parts[:end])) in found), ""):
            raise BadRequest(f"{field}.files: {above!r} is a file, and {path!r} is below it", field=f"{field}.files")
    return tuple(found.values())


def check_path(field: str, path: str) -> None:
    """Raise BadRequest for a path that could lead out of the mount, or that no file system takes."""
    parts = path.split("/")
    if not path or len(path) > MOST_PATH or any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts):
        raise bad(field, path, f"a relative path without . and .., at most {MOST_PATH} characters")


def within_bounds(mounts: Iterable[Mount]) -> None:
    """Raise BadRequest when a container has more in its files than is stored with it."""
    size = sum(len(each.content) * 3 // 4 for mount in mounts for each in mount.files)
    if size > MOST_FILE_BYTES:
        raise BadRequest(f"mounts: {size} bytes in files: at most {MOST_FILE_BYTES} are allowed", field="mounts")


def file_messages(mount: Mount) -> list[pb.MountFile]:
    """Return the files for a reply: those of a secret are empty."""
    return [
        pb.MountFile(path=each.path, content=b"" if mount.secret else each.data, mode=each.mode) for each in mount.files
    ]


def secrets_of(message: pb.SecretsSpec, *, of_bundle: bool) -> SecretWords:
    """Return the checked secrets. Raises BadRequest, whose text shows none of them."""
    if of_bundle and (message.env or message.words):
        raise BadRequest("secrets: a bundle has its own environment and command line; drop one", field="secrets")
    for index, text in enumerate(message.env):
        if text.find("=") < 1:
            raise BadRequest(f"secrets.env[{index}]: allowed is KEY=VALUE", field="secrets.env")
    size = bounds.size_of(message.env) + bounds.size_of_pairs(message.words.items())
    if size > bounds.MOST_WORDS_BYTES:
        raise BadRequest(f"secrets: {size} bytes: at most {bounds.MOST_WORDS_BYTES} are allowed", field="secrets")
    return SecretWords(tuple(message.env), tuple(sorted(message.words.items())))


def secrets_message(secrets: SecretWords) -> pb.SecretsSpec | None:
    """Return the names alone."""
    if not secrets.env:
        return None
    return pb.SecretsSpec(env=[f"{text.partition('=')[0]}=" for text in secrets.env])

"""What a container gets from files and variables of which no reply shows more than the names."""

import base64

from shim.frozen import frozen

DEFAULT_MODE = 0o644


@frozen
class MountedFile:
    """A file of a mount that is made of files. `content` is base64: a row holds text."""

    path: str  # below the mount's destination, without . and ..
    content: str = ""
    mode: int = DEFAULT_MODE

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return base64.b64decode(self.content)


def mounted_file(path: str, data: bytes, mode: int = DEFAULT_MODE) -> MountedFile:
    """Return a file with these bytes. `mode`: its permission bits."""
    return MountedFile(path, base64.b64encode(data).decode(), mode)


@frozen
class SecretWords:
    """Variables (K=V) and words of the command line (as shown, as used) that are never shown."""

    env: tuple[str, ...] = ()
    words: tuple[tuple[str, str], ...] = ()

    def used(self, args: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command line as it is executed."""
        known = dict(self.words)
        return tuple(known.get(word, word) for word in args)

"""How a new volume gets what the image has where it is mounted: as a tar that nothing keeps, from thread to disk."""

import os
from contextlib import closing

from supervisor.images import extract, pack, tar, tools
from supervisor.images.deadline import Deadline, Halt
from supervisor.model.errors import ExitdError, ShimFailed


class VolumeFill:
    """A `supervisor.runtime.oci.volumes.Fill`. Close it when no work is left."""

    def __init__(self) -> None:
        self._halt = Halt()

    def close(self) -> None:
        self._halt.close()

    def __call__(self, source_fd: int, into_fd: int) -> None:
        """Copy a directory into an empty one, with owners, modes, times and attributes; it is on the disk then. Device
        nodes and sockets are left out. Raises ShimFailed."""
        try:
            keeping = extract.Keeping(owner=True, xattrs=True, top=True)
            with closing(pack.pack(source_fd, ".")) as parts:
                extract.extract(tar.TarReader(extract.ChunkSource(parts)), into_fd, keeping)
            deadline = Deadline("writing a new volume", tools.SYNC_SECONDS, self._halt)
            tools.sync_file_system(os.readlink(f"/proc/self/fd/{into_fd}"), deadline)
        except ExitdError as error:
            raise ShimFailed(f"a new volume cannot be filled from the image: {error}") from error

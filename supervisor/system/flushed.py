"""What is to outlive a power cut."""

import os


def flush_directory(path: str) -> None:
    """Write the names in a directory to the disk, with fsync(2). Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

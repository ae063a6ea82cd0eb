"""Earlier versions of exitd, as this clone has them."""

import pathlib
import subprocess

# The last commit of each part. What these have left on a disk, and what runs under them, every later exitd takes over.
VERSIONS = (
    "6e7571d5e3b497244999cab64157661d22674a5a",
    "c7542eadf5cace614801d371b4debc46201ec4ae",
    "d9e706e8498b903ee36275347b77b589c17664ed",
    "a2131738b60d5ac66231a310d9d6a5602e630c00",
    "aa136d736ec16797e533c90a8b2f36d8b511a6a8",
)
COMMAND_SECONDS = 280.0  # for each of git's and tar's; the machine may do ten other things


class NoSuchCommit(Exception):
    """The clone has no such commit; the text ends with the command that brings it."""


def git(repository: pathlib.Path, *words: str) -> "subprocess.CompletedProcess[bytes]":
    """Also in a clone that belongs to another user."""
    command = ("git", "-c", "safe.directory=*", "-C", str(repository), *words)
    return subprocess.run(command, capture_output=True, timeout=COMMAND_SECONDS)


def unpack(repository: pathlib.Path, commit: str, directory: pathlib.Path) -> None:
    """Write the files of a commit into a new directory. Raises NoSuchCommit."""
    if git(repository, "cat-file", "-e", f"{commit}^{{tree}}").returncode:
        raise NoSuchCommit(f"{repository} does not have the commit {commit[:7]}; run: {_cure(repository, commit)}")
    archive = git(repository, "archive", commit)
    assert archive.returncode == 0, archive.stderr.decode()
    directory.mkdir()
    subprocess.run(("tar", "-x", "-C", str(directory)), input=archive.stdout, check=True, timeout=COMMAND_SECONDS)


def _cure(repository: pathlib.Path, commit: str) -> str:
    shallow = git(repository, "rev-parse", "--is-shallow-repository")
    if shallow.returncode:
        return "git clone, which brings the history; this directory is no clone"
    return "git fetch --unshallow" if shallow.stdout.strip() == b"true" else f"git fetch origin {commit}"

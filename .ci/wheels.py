"""Makes what PyPI would take, in dist/: an sdist, and a wheel whose tag says which glibc it needs at least.

The wheel is one for every Python from 3.11 on (abi3). The C programs in it are static and run with any libc; the
extension module needs the glibc of its tag. A third file is the wheel of the Python client, which is for any machine.
Prints the names of all.
"""

import pathlib
import shutil
import sys
import tempfile
import zipfile

import tree
from packaging.metadata import Metadata
from packaging.utils import parse_sdist_filename, parse_wheel_filename

DIST = tree.ROOT / "dist"


class NotForPyPI(Exception):
    """It would be refused there; the text says why."""


def check(wheel: pathlib.Path) -> None:
    """Raises NotForPyPI for a tag that names no policy of PEP 600, ExceptionGroup for metadata that are not valid."""
    _, _, _, tags = parse_wheel_filename(wheel.name)
    unfit = [tag.platform for tag in tags if not tag.platform.startswith("manylinux")]
    if unfit:
        raise NotForPyPI(f"{wheel.name}: {', '.join(unfit)} is no platform of manylinux")
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
        Metadata.from_email(opened.read(name), validate=True)


def repaired(plain: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """Return the wheel with its tag, which is put into the empty directory `to`. Raises what `check` raises,
    CalledProcessError."""
    tree.run((sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", to, plain))
    (wheel,) = to.glob("*.whl")
    check(wheel)
    return wheel


def build(to: pathlib.Path) -> list[pathlib.Path]:
    """Return sdist and wheel, and the client's wheel, in the directory `to`, made anew. Raises NotForPyPI,
    CalledProcessError."""
    shutil.rmtree(to, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="exitd-wheels-") as scratch:
        place = pathlib.Path(scratch)
        copy = tree.copy(place / "tree")
        tree.run((sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", to), copy)
        (sdist,) = to.glob("*.tar.gz")
        parse_sdist_filename(sdist.name)
        plain = tree.wheel(sdist, place / "plain")
        wheel = repaired(plain, to)
        alone = ("--no-deps", "--no-build-isolation", "--wheel-dir")
        tree.run((sys.executable, "-m", "pip", "wheel", "--quiet", *alone, to, copy / "client"))
    (client,) = to.glob("exitd_client-*.whl")
    return [sdist, wheel, client]


if __name__ == "__main__":
    print(*(path.name for path in build(DIST)), sep="\n")

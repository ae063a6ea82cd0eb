"""The files of the tree as git has them, and what is built of them where nothing else lies about."""

import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT_SECONDS = 1800


def copy(to: pathlib.Path) -> pathlib.Path:
    """Copy all that git knows or would take, as it is now, into the new directory `to`. Raises CalledProcessError."""
    words = ("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)
    return to


def run(words: Sequence[object], cwd: pathlib.Path | None = None) -> None:
    """Run a command; what it says goes to stderr. Raises CalledProcessError."""
    subprocess.run(
        list(map(str, words)), check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, cwd=cwd, timeout=LIMIT_SECONDS
    )


def pip(*words: object) -> None:
    """Raises CalledProcessError."""
    run((sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words))


def wheel(tree: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """Build exitd's wheel of the copy `tree` into the directory `to`. Raises CalledProcessError."""
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", to, tree)
    (made,) = to.glob("exitd-*.whl")
    return made

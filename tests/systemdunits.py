"""What systemd says of unit files."""

import os
import pathlib
import subprocess
from collections.abc import Iterable


def verified(directory: pathlib.Path, files: Iterable[pathlib.Path]) -> tuple[int, list[str]]:
    """systemd-analyze's exit code, and what it says of exitd. Other units are looked for in `directory` first."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(files))],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{directory}:"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, [line for line in (done.stdout + done.stderr).splitlines() if "exitd" in line]

"""What systemd says of unit files."""

import os
import pathlib
import re
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


def exposure(directory: pathlib.Path, file: pathlib.Path) -> float:
    """What `systemd-analyze security` finds: 0 is nothing that a program could harm, 10 everything."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(file)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{directory}:"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done
    return float(found[1])

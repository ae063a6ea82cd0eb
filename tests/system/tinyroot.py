"""A root file system that holds a few of the host's programs, the libraries they need, and nothing else."""

import json
import pathlib
import re
import shutil
import subprocess
from functools import cache

LIMIT_SECONDS = 20.0
PROGRAMS = (
    *("sh", "true", "sleep", "cat", "head", "tr", "kill", "setsid", "grep", "ls", "id", "env", "mkfifo", "hostname"),
    *("mkdir", "touch", "readlink", "rm", "stat", "wc", "seq", "mount", "ps"),
)


def make(root: pathlib.Path, programs: tuple[str, ...] = PROGRAMS) -> pathlib.Path:
    """Programs in /bin, their libraries where the loader looks for them. What the host lacks is left out."""
    (root / "bin").mkdir(parents=True, exist_ok=True)
    for name in programs:
        found = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if found:
            shutil.copy(found, root / "bin" / name)
            for library in _libraries(found):
                target = root / library.lstrip("/")
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(library, target)
    return root


@cache
def _libraries(program: str) -> tuple[str, ...]:
    """Absolute paths of everything ldd(1) names, the loader included; none for a static program."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=20)
    return tuple(re.findall(r"(/\S+) \(0x", told.stdout)) if told.returncode == 0 else ()


def bundle(directory: pathlib.Path, args: list[str], cgroup: str, host_pids: bool = False) -> pathlib.Path:
    """A bundle whose root holds a few programs and nothing else."""
    make(directory / "rootfs")
    subprocess.run(["runc", "spec", "--bundle", str(directory)], check=True, timeout=LIMIT_SECONDS)
    config = json.loads((directory / "config.json").read_text())
    config["process"].update(terminal=False, args=args, env=["PATH=/bin"])
    config["linux"]["cgroupsPath"] = cgroup
    if host_pids:
        config["linux"]["namespaces"] = [one for one in config["linux"]["namespaces"] if one["type"] != "pid"]
    (directory / "config.json").write_text(json.dumps(config))
    return directory

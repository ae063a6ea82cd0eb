"""Makes exitd's Debian package for one suite or several: /opt/exitd with an environment of its own.

    python .ci/deb.py [--revisions N[,N...]] [--out DIR] [--uncompressed] SUITE...

A package has everything that exitd needs of Python, fetched now, and is installed without a network. It is of one
suite because grpc is built for one version of Python. Prints the paths of the packages, one a line.
"""

import argparse
import datetime
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PathDistribution

import manpages
import tree
from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from supervisor import __version__
from supervisor.store import schema

HOME = "opt/exitd"
PYTHON = f"/{HOME}/bin/python"
UNITS = "usr/lib/systemd/system"
APPARMOR = "etc/apparmor.d"
LINKS = {
    "usr/bin/exitctl": f"/{HOME}/bin/exitctl",
    "usr/sbin/exitd": f"/{HOME}/bin/exitd",
    # containerd looks for the program of io.containerd.exitd.v2 on its PATH.
    "usr/bin/containerd-shim-exitd-v2": f"/{HOME}/bin/containerd-shim-exitd-v2",
}
COMPRESSION = ("-Zxz", "-z3")
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
# These are on PyPI as sources only. They are plain Python, so one wheel is for every suite.
AS_SOURCES = ("pyinotify>=0.9.6",)
MAINTAINER = "exitd's authors <exitd@localhost>"


@dataclass(frozen=True)
class Suite:
    """A release of Debian: the end of its packages' versions, its Python, its glibc, and whether its systemd knows
    Type=notify-reload (since 253)."""

    number: int
    python: str
    glibc: tuple[int, int]
    notify_reload: bool = True


SUITES = {
    "bookworm": Suite(12, "3.11", (2, 36), notify_reload=False),
    "trixie": Suite(13, "3.13", (2, 41)),
    "forky": Suite(14, "3.14", (2, 42)),
}


class CannotBuild(Exception):
    """The package cannot be made here; the text says why."""


def version_of(suite: Suite, revision: int) -> str:
    """Of two suites the later one's is the greater: a machine that is upgraded to it gets the other package."""
    return f"{__version__}-{revision}~deb{suite.number}"


def architecture() -> str:
    """Return Debian's word for this machine. Raises CalledProcessError."""
    words = ("dpkg", "--print-architecture")
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


# -- wheels


def environment_of(suite: Suite) -> dict[str, str]:
    """Return the markers of PEP 508 that differ from this Python's."""
    return {"python_version": suite.python, "python_full_version": f"{suite.python}.0", "extra": ""}


def requirements(suite: Suite) -> list[str]:
    """Return what exitd needs there, without markers: pip judges those by the Python that runs it."""
    project = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())["project"]
    found = []
    for text in project["dependencies"]:
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate(environment_of(suite)):
            needed.marker = None
            found.append(str(needed))
    return found


def fetch(suite: Suite, own: pathlib.Path, to: pathlib.Path) -> None:
    """Fetch wheels of all that is needed into `to`, for the suite's Python and glibc. `own`: a directory of wheels to
    take instead. Raises CalledProcessError."""
    machine = os.uname().machine
    glibcs = [f"manylinux_2_{minor}_{machine}" for minor in range(suite.glibc[1], 4, -1)]
    platforms = [*glibcs, f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"manylinux1_{machine}"]
    abis = (f"cp{suite.python.replace('.', '')}", "abi3", "none")
    tree.pip(
        *("download", "--only-binary=:all:", "--dest", to, "--find-links", own),
        *("--python-version", suite.python, "--implementation", "cp"),
        *(word for platform in platforms for word in ("--platform", platform)),
        *(word for abi in abis for word in ("--abi", abi)),
        *requirements(suite),
    )


def check_glibc(wheel: pathlib.Path, suite: Suite) -> None:
    """Raises CannotBuild when the extension was linked with a newer glibc than the suite has."""
    with WheelFile.open(wheel) as source:
        for (name, _, _), stream, _ in source.get_contents():
            if name.endswith(".so"):
                found = {(int(a), int(b)) for a, b in re.findall(rb"GLIBC_(\d+)\.(\d+)", stream.read())}
                if max(found, default=(0, 0)) > suite.glibc:
                    raise CannotBuild(f"{name} needs glibc {max(found)}; build on Debian {suite.number} or older")


def unmet(site: pathlib.Path, suite: Suite) -> list[str]:
    """Return what the installed distributions require there and is not among them."""
    there = {canonicalize_name(d.metadata["Name"]): d for d in map(PathDistribution, site.glob("*.dist-info"))}
    missing = []
    for distribution in there.values():
        for needed in map(Requirement, distribution.requires or ()):
            if needed.marker is not None and not needed.marker.evaluate(environment_of(suite)):
                continue
            found = there.get(canonicalize_name(needed.name))
            if found is None or not needed.specifier.contains(found.version, prereleases=True):
                missing.append(f"{distribution.metadata['Name']} needs {needed}")
    return missing


# -- files


def lay_out(stage: pathlib.Path, suite: Suite, own: pathlib.Path, others: list[pathlib.Path]) -> None:
    """Write all files of the package below `stage`: exitd's wheel, and those of what it needs. Raises CannotBuild."""
    site = f"{HOME}/lib/python{suite.python}/site-packages"
    scheme = {
        "purelib": f"/{site}",
        "platlib": f"/{site}",
        "scripts": f"/{HOME}/bin",
        "data": f"/{HOME}",
        "headers": f"/{HOME}/include",
    }
    place = SchemeDictionaryDestination(scheme, interpreter=PYTHON, script_kind="posix", destdir=str(stage))
    for wheel in (*others, own):
        if wheel is own:
            shutil.rmtree(stage / HOME / "bin", ignore_errors=True)  # commands of libraries are nobody's here
        with WheelFile.open(wheel) as source:
            install(source=source, destination=place, additional_metadata={"INSTALLER": b"dpkg\n"})
    if missing := unmet(stage / site, suite):
        raise CannotBuild("not fetched: " + "; ".join(missing))
    _environment(stage / HOME, suite)
    for name, target in LINKS.items():
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).symlink_to(target)
    _units(stage, suite)
    (stage / APPARMOR).mkdir(parents=True)
    for path in (tree.ROOT / "systemd/apparmor.d").iterdir():
        shutil.copy(path, stage / APPARMOR / path.name)
    manpages.write(stage)
    documents = stage / "usr/share/doc/exitd"
    documents.mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copy(tree.ROOT / name, documents / name)
    shutil.copy(tree.ROOT / "LICENSE", documents / "copyright")
    shutil.copytree(tree.ROOT / "docs", documents / "docs")
    shutil.copy(tree.ROOT / "systemd/config.toml", documents / "config.toml")


def _environment(home: pathlib.Path, suite: Suite) -> None:
    """What `python -m venv` would have made: venv's documentation, and PEP 405."""
    interpreter = f"/usr/bin/python{suite.python}"
    (home / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {suite.python}\nexecutable = {interpreter}\n"
    )
    (home / "bin/python").symlink_to(interpreter)
    (home / "bin/python3").symlink_to("python")


def _units(stage: pathlib.Path, suite: Suite) -> None:
    source = tree.ROOT / "systemd"
    for kind in ("*.service", "*.socket", "*.slice", "*.d/*.conf"):
        for path in source.glob(kind):
            folder = path.parent.name if path.parent != source else ""
            place = {"sysusers.d": "usr/lib/sysusers.d", "tmpfiles.d": "usr/lib/tmpfiles.d"}.get(folder)
            goal = stage / (place or f"{UNITS}/{folder}") / path.name
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, goal)
    for daemon in ("exitd.service", "exitd-watch.service") if suite.notify_reload else ():
        drop_in = stage / UNITS / f"{daemon}.d/notify-reload.conf"
        drop_in.parent.mkdir()
        drop_in.write_text(
            "# `systemctl reload` returns when the configuration has been read.\n"
            "[Service]\nType=notify-reload\nExecReload=\n"
        )


def control(suite: Suite, version: str, size_kib: int) -> str:
    return f"""Package: exitd
Version: {version}
Architecture: {architecture()}
Maintainer: {MAINTAINER}
Installed-Size: {size_kib}
Depends: python{suite.python}, libc6 (>= {suite.glibc[0]}.{suite.glibc[1]}), init-system-helpers (>= 1.51), passwd
Recommends: runc | crun, containernetworking-plugins, iptables
Suggests: containerd, skopeo, bash-completion
Section: admin
Priority: optional
Description: container supervisor that reports every exit exactly once
 exitd runs containers with any OCI runtime, or any containerd shim, and
 reports every exit exactly once: with the true code, or with an honest
 "unknown" and its cause. Containers survive its restart and its upgrade.
 .
 This package has a Python environment of its own in /opt/exitd.
"""


def _control_files(stage: pathlib.Path, suite: Suite, version: str) -> None:
    folder = stage / "DEBIAN"
    shutil.rmtree(folder, ignore_errors=True)
    paths = sorted(path for path in stage.rglob("*") if path.is_file() and not path.is_symlink())
    size_kib = sum(-(-path.stat().st_size // 1024) for path in paths)
    folder.mkdir()
    (folder / "control").write_text(control(suite, version, size_kib))
    sums = (f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(stage)}\n" for path in paths)
    (folder / "md5sums").write_text("".join(sums))
    changeable = sorted(f"/{path.relative_to(stage)}\n" for path in (stage / "etc").rglob("*") if path.is_file())
    (folder / "conffiles").write_text("".join(changeable))
    words = {"@VERSION@": version, "@SCHEMA@": str(schema.VERSION), "@SITE@": f"/{HOME}/lib/python{suite.python}"}
    for name in SCRIPTS:
        text = (tree.ROOT / "debian" / name).read_text()
        for word, value in words.items():
            text = text.replace(word, value)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def _set_times(stage: pathlib.Path) -> None:
    """The same files have the same times whenever they are built: those of the commit."""
    words = ("git", "-C", str(tree.ROOT), "log", "-1", "--format=%ct")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    when = float(done.stdout.strip() or datetime.datetime.now().timestamp())
    for path in stage.rglob("*"):
        os.utime(path, (when, when), follow_symlinks=False)


def build(
    names: list[str], revisions: list[int], out: pathlib.Path, compression: tuple[str, ...] = COMPRESSION
) -> Iterator[pathlib.Path]:
    """Yield each package once it is there. Raises CannotBuild, CalledProcessError."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="exitd-deb-") as scratch:
        place = pathlib.Path(scratch)
        own = place / "own"
        wheel = tree.wheel(tree.copy(place / "tree"), own)
        tree.pip("wheel", "--no-deps", "--wheel-dir", own, *AS_SOURCES)
        for name in names:
            suite = SUITES[name]
            check_glibc(wheel, suite)
            fetch(suite, own, place / f"wheels-{name}")
            stage = place / f"stage-{name}"
            stage.mkdir()
            lay_out(stage, suite, wheel, sorted((place / f"wheels-{name}").glob("*.whl")))
            for revision in revisions:
                version = version_of(suite, revision)
                _control_files(stage, suite, version)
                _set_times(stage)
                made = out / f"exitd_{version}_{architecture()}.deb"
                tree.run(("dpkg-deb", "--root-owner-group", *compression, "--build", stage, made))
                yield made


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deb.py", description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="+", choices=SUITES, metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--revisions", default="1", metavar="N[,N...]", help="of the packages; default 1")
    parser.add_argument("--out", type=pathlib.Path, default=tree.ROOT / "build/deb", help="default build/deb")
    parser.add_argument("--uncompressed", action="store_true", help="ten seconds of a processor less for each")
    given = parser.parse_args(words)
    compression = ("-Znone",) if given.uncompressed else COMPRESSION
    try:
        for made in build(given.suites, list(map(int, given.revisions.split(","))), given.out, compression):
            print(made, flush=True)
    except CannotBuild as error:
        print(f"deb: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

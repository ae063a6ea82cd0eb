"""Only what pyproject.toml cannot say: the C programs, the cffi extension, the protobuf stubs.

`python setup.py build_ext --inplace build_protos --inplace build_scripts --build-dir DIR` rebuilds an editable tree.
EXITD_CC names the only C compiler to use, EXITD_CFLAGS adds to its flags (a sanitizer build, say).
"""

import logging
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile

from setuptools import Command, Distribution, setup
from setuptools.command.build import build

ROOT = pathlib.Path(__file__).resolve().parent

KEEPER_CORE = ("fields", "message", "pidfd", "procfs", "record", "registration", "wait")
# The C programs and what each is made of. Test drivers and the extension's own file belong to none of them.
PROGRAMS = {
    "exitd-shim": ["shim/core/*.c"],
    "exitd-keeper": ["shim/keeper/*.c", *(f"shim/core/{name}.c" for name in KEEPER_CORE)],
    "containerd-shim-exitd-v2": ["shim/relay/*.c", "shim/core/fields.c", "shim/core/record.c", "shim/core/procfs.c"],
    "exitd-launch": ["shim/launcher/*.c"],
    "exitd-journald": ["shim/journald/*.c"],
    "exitd-pause": ["shim/pause/*.c"],
}
# What runs where there is no library: never a dynamic program.
ALONE = ("exitd-pause",)
IN_NO_PROGRAM = ("native.c", "*_test.c")

VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "supervisor" / "__init__.py").read_text())[1]
CFLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-Ishim/core", f'-DEXITD_VERSION="{VERSION}"']
SMALL = ["-Os", "-ffunction-sections", "-fdata-sections", "-s"]
STATIC = ["-static", "-Wl,--gc-sections,-z,norelro,-z,noseparate-code,--build-id=none"]


def sources(patterns: list[str]) -> list[str]:
    """The files that the patterns name, relative to the root; none at all is an error of the tree."""
    found = sorted(p for pattern in patterns for p in ROOT.glob(pattern) if not any(map(p.match, IN_NO_PROGRAM)))
    if not found:
        raise SystemExit(f"no C sources match {' '.join(patterns)}: this tree is not complete")
    return [str(p.relative_to(ROOT)) for p in found]


def compilers(alone: bool) -> list[list[str]]:
    """The commands to try, best first: a static musl program has the least private memory, a dynamic one the most."""
    commands = any_compilers()
    # One alone is a sanitizer's.
    return commands[:-1] if alone and len(commands) > 1 else commands


def any_compilers() -> list[list[str]]:
    if chosen := os.environ.get("EXITD_CC"):
        cc = shlex.split(chosen)
        # The sanitizers' libraries are dynamic.
        return [cc] if "-fsanitize" in os.environ.get("EXITD_CFLAGS", "") else [[*cc, *STATIC], cc]
    cc = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if not shutil.which(cc[0]):
        cc = ["cc"]
    musl = [["musl-gcc", *STATIC]] if shutil.which("musl-gcc") else []
    return [*musl, [*cc, *STATIC], cc]


class build_programs(Distribution().get_command_class("build_scripts")):
    """Compiles PROGRAMS as the distribution's scripts: every way of installing puts scripts in the bin directory."""

    description = "compile the C programs"

    def get_source_files(self):
        return sorted({s for patterns in PROGRAMS.values() for s in sources(patterns)})

    def run(self):
        for name, patterns in PROGRAMS.items():
            self.compile(pathlib.Path(self.build_dir) / name, sources(patterns), name in ALONE)

    def compile(self, program, files, alone):
        """Writes beside the goal and renames: a running program keeps its file, a failed build the old one."""
        program.parent.mkdir(parents=True, exist_ok=True)
        extra = shlex.split(os.environ.get("EXITD_CFLAGS", ""))
        with tempfile.TemporaryDirectory(dir=program.parent, prefix=f".{program.name}.") as scratch:
            made = pathlib.Path(scratch) / program.name
            for command in compilers(alone):
                if self.try_compiler([*command, *CFLAGS, *SMALL, *extra, *files, "-o", str(made)]):
                    os.chmod(made, 0o755)
                    os.replace(made, program)
                    kind = "static" if "-static" in command else "dynamic"
                    self.announce(f"{program}: {command[0]}, {kind}, {program.stat().st_size} bytes", logging.INFO)
                    return
        what = f"{program.name}, which must be static" if alone else program.name
        raise SystemExit(f"no compiler could build {what}; its messages stand above (`make deps` installs one)")

    def try_compiler(self, command):
        """True when the command succeeded; its messages are shown, so that no fallback is a silent one."""
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        except FileNotFoundError:
            self.announce(f"{command[0]}: not found", logging.WARNING)
            return False
        if done.returncode:
            self.announce(f"{shlex.join(command)}\n{done.stderr}", logging.WARNING)
        return done.returncode == 0


class build_protos(Command):
    """Generates the protobuf stubs. Honours PEP 660: an editable install has them in the source tree."""

    description = "generate the protobuf stubs"
    user_options = [("inplace", "i", "write into the source tree (quick rebuild of an editable install)")]
    boolean_options = ["inplace"]

    def initialize_options(self):
        self.build_lib = None
        self.inplace = False
        self.editable_mode = False

    def finalize_options(self):
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def get_source_files(self):
        return [str(p.relative_to(ROOT)) for p in self.protos()]

    def get_outputs(self):
        return [str(pathlib.Path(self.build_lib) / stub) for stub in self.stubs()]

    def get_output_mapping(self):
        return {}

    def protos(self):
        return sorted((ROOT / "protos").rglob("*.proto"))

    def stubs(self):
        """What protoc will write, relative to the root of the tree."""
        bases = [str(p.relative_to(ROOT).with_suffix("")) for p in self.protos()]
        return [base + end for base in bases for end in ("_pb2.py", "_pb2.pyi")]

    def run(self):
        root = ROOT if self.editable_mode or self.inplace else pathlib.Path(self.build_lib)
        self.generate(root / "protos")
        for stub in self.stubs():
            absolute(root / stub)

    def generate(self, out):
        from importlib import resources

        from grpc_tools import protoc

        out.mkdir(parents=True, exist_ok=True)
        roots = [f"-I{ROOT / 'protos'}", f"-I{resources.files('grpc_tools') / '_proto'}"]
        if protoc.main(["protoc", *roots, f"--python_out={out}", f"--pyi_out={out}", *map(str, self.protos())]):
            raise SystemExit("protoc failed; its messages stand above")


def absolute(stub):
    """Rewrites one stub's imports of its siblings: protoc takes protos/ for the root of the import path."""
    ours = "|".join(p.name for p in (ROOT / "protos").iterdir() if p.is_dir() and p.name.isidentifier())
    text = stub.read_text()
    better = re.sub(rf"^from ((?:{ours})(?:\.\w+)*) import", r"from protos.\1 import", text, flags=re.M)
    if better != text:
        stub.write_text(better)


class build_all(build):
    # The stubs come last: they must overwrite stale ones that build_py may have copied from the tree.
    sub_commands = [*build.sub_commands, ("build_protos", None)]


if __name__ == "__main__":
    setup(
        cmdclass={"build": build_all, "build_protos": build_protos, "build_scripts": build_programs},
        cffi_modules=["shim/build_native.py:ffi"],
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
        scripts=list(PROGRAMS),
    )

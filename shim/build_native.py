"""Builds shim._native: the pure parts of the C programs and the door to the kernel, for Python, from the one header."""

import pathlib
import re

import cffi

CORE = pathlib.Path(__file__).resolve().parent / "core"
HEADERS = ("core.h",)
SOURCES = ("fields", "plan", "record", "crilog", "procfs", "native")


def declarations(header: str) -> str:
    """The lines of a header between the marks `cffi: begin` and `cffi: end`; ValueError without any."""
    parts: list[str] = re.findall(r"/\* cffi: begin \*/\n(.*?)/\* cffi: end \*/", header, flags=re.S)
    if not parts:
        raise ValueError("no lines between /* cffi: begin */ and /* cffi: end */")
    return "\n".join(parts)


ffi = cffi.FFI()
ffi.cdef(declarations((CORE / "core.h").read_text()))
ffi.set_source(
    "shim._native",
    '#include "core.h"',
    sources=[f"shim/core/{name}.c" for name in SOURCES],
    depends=[f"shim/core/{header.name}" for header in CORE.glob("*.h")],
    include_dirs=["shim/core"],
    # Not -Werror: the code that cffi writes is not ours.
    extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE"],
)

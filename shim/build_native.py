"""Builds shim._native: the pure parts of the C programs and the door to the kernel, for Python, from the one header."""

import pathlib
import re

import cffi

SHIM = pathlib.Path(__file__).resolve().parent
HEADERS = ("core/core.h", "journald/entry.h", "relay/relay.h")
RELAY = (
    *("buffer", "frames", "proto", "request", "pending", "text", "cache", "session", "courier"),
    *("group", "address", "evidence", "witness", "news"),
)
SOURCES = (
    *(f"core/{name}" for name in ("fields", "plan", "record", "crilog", "jsonlog")),
    *(f"core/{name}" for name in ("procfs", "cgroup", "memory", "kmsg", "pidfd", "registration")),
    *(f"core/{name}" for name in ("native", "blockwrite")),
    "journald/entry",
    *(f"relay/{name}" for name in RELAY),
)


def declarations(header: str) -> str:
    """The lines of a header between the marks `cffi: begin` and `cffi: end`; ValueError without any."""
    parts: list[str] = re.findall(r"/\* cffi: begin \*/\n(.*?)/\* cffi: end \*/", header, flags=re.S)
    if not parts:
        raise ValueError("no lines between /* cffi: begin */ and /* cffi: end */")
    return "\n".join(parts)


ffi = cffi.FFI()
for header in HEADERS:
    ffi.cdef(declarations((SHIM / header).read_text()))
ffi.set_source(
    "shim._native",
    "\n".join(f'#include "{header}"' for header in HEADERS),
    sources=[f"shim/{name}.c" for name in SOURCES],
    depends=[f"shim/{header.relative_to(SHIM)}" for header in SHIM.glob("*/*.h")],
    include_dirs=["shim", "shim/core"],
    # Not -Werror: the code that cffi writes is not ours.
    extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE"],
)

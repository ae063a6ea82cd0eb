"""Prints what pyproject.toml says a build requires, one a line, for an environment that builds without isolation."""

import pathlib
import tomllib

PROJECT = pathlib.Path(__file__).resolve().parent.parent / "pyproject.toml"

print(*tomllib.loads(PROJECT.read_text())["build-system"]["requires"], sep="\n")

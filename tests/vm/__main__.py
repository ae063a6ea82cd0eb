"""Runs checks in the machine: `python -m tests.vm [OPTION...] CHECK...`, all of them pytest's."""

import sys

import pytest

CHECKS = ("-o", "python_files=check_*.py", "-o", "python_functions=check_*", "--verbose")

if __name__ == "__main__":
    sys.exit(pytest.main([*CHECKS, *sys.argv[1:]]))

"""Runs checks in the machine: `python -m tests.vm [OPTION...] CHECK...`, all of them pytest's.

With pytest-xdist's `--numprocesses 2 --dist loadfile --no-loadscope-reorder` two machines run at once: each has the
next file of checks, in their order.
"""

import os
import sys

import pytest

from tests.vm import suite

CHECKS = ("-o", "python_files=check_*.py", "-o", "python_functions=check_*", "--verbose")

if __name__ == "__main__":
    os.environ["EXITD_VM_SEED"] = str(suite.SEED)  # for processes of pytest-xdist's, too: all choose the same files
    sys.exit(pytest.main([*CHECKS, *sys.argv[1:]]))

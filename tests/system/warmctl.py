"""exitctl without a start of its own, see warm.

As it is installed it is what Cli.begin, the terminals and the pages of the documentation start.
"""

import contextlib
import os

from tests.system.warm import Forked


def run(words: tuple[str, ...], environment: dict[str, str], seconds: float) -> tuple[int, bytes, bytes]:
    """Exit code as subprocess gives it, stdout, stderr. subprocess.TimeoutExpired when it has not ended in time."""
    with contextlib.ExitStack() as files:
        nothing = files.enter_context(open(os.devnull, "rb"))
        out, err = (files.enter_context(os.fdopen(os.memfd_create(name), "rb")) for name in ("out", "err"))
        stdio = (nothing.fileno(), out.fileno(), err.fileno())
        code = Forked("exitctl", ("exitctl",), words, stdio, environment).wait(seconds)
        out.seek(0)  # both processes' place in the file, and that was its end
        err.seek(0)
        return code, out.read(), err.read()

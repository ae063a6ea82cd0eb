"""What is opened or begun in one place and handed on to another, unless that fails."""

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def undone_on_failure(undo: Callable[[], object]) -> Iterator[None]:
    """Whatever ends the block before its time, a cancelled task included: undone, and the error goes on."""
    with contextlib.ExitStack() as stack:
        stack.callback(undo)
        yield
        stack.pop_all()

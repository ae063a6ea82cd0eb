"""How the way to a shim is kept, and read again by the next exitd."""

from pathlib import Path

import pytest

from supervisor.runtime.foreign_shim import place
from supervisor.runtime.foreign_shim.place import Contact
from tests.supervisor.descriptors import only


def test_a_contact_that_cannot_be_read_now_is_not_taken_for_absent(tmp_path: Path) -> None:
    """Its container would count as one whose monitors were killed."""
    assert place.read_contact(str(tmp_path)) is None
    contact = Contact("/bin/shim", "unix:///run/s", 2)
    place.leave_contact(str(tmp_path), contact)
    with only(0), pytest.raises(OSError, match="Too many open files"):
        place.read_contact(str(tmp_path))
    assert place.read_contact(str(tmp_path)) == contact
    (tmp_path / place.CONTACT).write_bytes(b"garbled")
    assert place.read_contact(str(tmp_path)) is None

"""Messages that are written down twice, for exitd and for its tests: both must mean the same."""

import pytest

from protos.containerd import events_pb2
from tests.system.containerd.events import EVENTS


@pytest.mark.parametrize("name", sorted(events_pb2.DESCRIPTOR.message_types_by_name))
def test_an_event_has_the_fields_that_the_tests_read(name: str) -> None:
    ours, theirs = (
        {field.name: (field.number, field.type) for field in message.fields}
        for message in (events_pb2.DESCRIPTOR.message_types_by_name[name], getattr(EVENTS, name).DESCRIPTOR)
    )
    assert ours == theirs

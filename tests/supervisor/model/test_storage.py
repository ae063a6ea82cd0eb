"""Words for the place of a writable layer."""

import pytest

from supervisor.model import storage
from supervisor.model.storage import LEFT_OPEN, Storage, StorageKind


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", LEFT_OPEN),
        ("disk", Storage(StorageKind.DISK)),
        ("tmpfs", Storage()),
        ("tmpfs:64k", Storage(StorageKind.TMPFS, 65_536)),
        ("tmpfs:1024t", Storage(StorageKind.TMPFS, storage.MOST_BYTES)),
    ],
)
def test_a_word_is_read_and_written(text: str, found: Storage) -> None:
    assert storage.parse(text) == found
    assert storage.parse(str(found)) == found


@pytest.mark.parametrize("text", ["ram", "disk:1g", "disk:", "tmpfs:", "tmpfs:0", "tmpfs:63k", "tmpfs:1025t"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        storage.parse(text)


@pytest.mark.parametrize("text", ["disk:1g", "disk:"])
def test_a_size_on_disk_is_refused_with_the_way_to_a_limit(text: str) -> None:
    with pytest.raises(ValueError, match=r"tmpfs:SIZE; a layer on disk has no limit of its own, one in memory has"):
        storage.parse(text)

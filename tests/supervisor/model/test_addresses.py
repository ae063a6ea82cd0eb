"""Addresses as others write them."""

import pytest

from supervisor.model.addresses import address, with_prefix


def test_an_address_is_written_in_one_way() -> None:
    assert (address("127.0.0.1"), address("0:0::1"), with_prefix("FD00::2/64")) == ("127.0.0.1", "::1", "fd00::2/64")


@pytest.mark.parametrize("text", ["", "here", "1.2.3", "::1\n", "fe80::1%eth0", "fe80::1%a\nnameserver 192.0.2.66"])
def test_what_is_none_is_refused_and_so_is_one_with_a_scope(text: str) -> None:
    with pytest.raises(ValueError):
        address(text)
    with pytest.raises(ValueError):
        with_prefix(f"{text}/64")

"""Where metrics may be served: where no other machine can reach them."""

import pytest

from supervisor.config import listen
from supervisor.config.listen import TcpPlace, UnixPlace


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("127.0.0.1:9476", TcpPlace("127.0.0.1", 9476)),
        ("127.1.2.3:1", TcpPlace("127.1.2.3", 1)),
        ("[::1]:9476", TcpPlace("::1", 9476)),
        ("[0:0::1]:9476", TcpPlace("::1", 9476)),
        ("unix:/run/exitd/metrics.sock", UnixPlace("/run/exitd/metrics.sock")),
        ("unix:/run//exitd/../x", UnixPlace("/run/x")),
    ],
)
def test_a_place_is_read_and_written_as_it_can_be_read_again(text: str, place: listen.Place) -> None:
    assert listen.parse(text) == place == listen.parse(str(place))


@pytest.mark.parametrize(
    "text",
    [
        *("0.0.0.0:9476", "192.168.1.5:9476", "[::]:9476", "[fe80::1]:9476", "localhost:9476", "node:9476"),
        *("127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", ":9476", "::1:9476", "[127.0.0.1]:9476"),
        *("unix:", "unix:run/x", "unix:/run/x/", "unix:/a\0b", "/run/x", "", "unix:/" + "a" * 107, "127.0.0.1:99999"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        listen.parse(text)

"""The log driver journald, from exitctl to the journal's socket: a stand-in's, in a mount namespace of the daemon's."""

import pathlib
import socket
from collections.abc import Iterator
from typing import cast

import pytest

from tests.system.daemons import daemon
from tests.system.exitctl import Cli

SOCKETS = "/run/systemd/journal"
OWN_JOURNAL = f'mount -t tmpfs none /run && mkdir -p {SOCKETS} && mount --bind "$0" {SOCKETS} && exec "$@"'


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "socket"))
        made.settimeout(10)
        yield made


def fields_of(message: bytes) -> dict[str, str]:
    """Of the journal's native protocol, without binary fields."""
    return dict(cast("tuple[str, str]", tuple(line.split("=", 1))) for line in message.decode().splitlines())


def test_both_streams_come_to_the_journal_under_the_containers_name_and_logs_says_where_to_look(
    journal: socket.socket, tmp_path: pathlib.Path
) -> None:
    with daemon(wrapper=("unshare", "--mount", "sh", "-c", OWN_JOURNAL, str(tmp_path))) as made:
        cli = Cli(made)
        said = cli.run("--name", "web", "--log-driver", "journald", "sh", "-c", "echo out; echo err >&2")
        assert (said.code, said.out, said.err) == (0, "out\n", "err\n")
        found = {(f := fields_of(journal.recv(65_536)))["MESSAGE"]: f for _ in range(2)}
        id = cli.field("web", ".Id")
        for message, priority in (("out", "6"), ("err", "3")):
            fields = found[message]
            assert (fields["PRIORITY"], fields["CONTAINER_NAME"]) == (priority, "web")
            assert (fields["CONTAINER_ID"], fields["CONTAINER_ID_FULL"]) == (id[:12], id)
        asked = cli("logs", "web")
        query = f"journalctl CONTAINER_ID_FULL={id}"
        assert asked.err == f"exitctl: web writes to the journal (log driver journald); read it with: {query}\n"
        assert asked.code == 125

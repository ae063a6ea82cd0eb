"""--add-host and --dns, from words to a request and back."""

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.namewords import NameWords, resolver_spec
from supervisor.cli.shape import container_document
from supervisor.cli.spec import RunOptions, container_spec, run_options
from supervisor.model.errors import BadRequest


def test_nothing_is_asked_where_nothing_is_said() -> None:
    assert resolver_spec(NameWords()) is None
    assert not container_spec(RunOptions(command=("/", "true")), {}).HasField("resolver")


def test_every_word_arrives() -> None:
    options = {
        "command": ("/", "true"),
        "add_host": ("db:192.0.2.7", "six=[2001:db8::1]", "seven:2001:db8::7"),
        "dns": ("192.0.2.1",),
        "dns_search": ("example.org",),
        "dns_option": ("ndots:2",),
    }
    spec = container_spec(run_options(options), {})
    assert spec.resolver == pb.ResolverSpec(
        servers=["192.0.2.1"],
        searches=["example.org"],
        options=["ndots:2"],
        hosts=[
            pb.HostEntry(name="db", address="192.0.2.7"),
            pb.HostEntry(name="six", address="2001:db8::1"),
            pb.HostEntry(name="seven", address="2001:db8::7"),
        ],
    )
    host = container_document(pb.Container(spec=spec))["HostConfig"]
    assert isinstance(host, dict)
    assert host["ExtraHosts"] == ["db:192.0.2.7", "six:2001:db8::1", "seven:2001:db8::7"]
    assert (host["Dns"], host["DnsSearch"], host["DnsOptions"]) == (["192.0.2.1"], ["example.org"], ["ndots:2"])


@pytest.mark.parametrize("word", ["", "db", "db:", ":192.0.2.7", "=", "db:host-gateway"])
def test_what_is_no_host_is_refused_with_the_word(word: str) -> None:
    with pytest.raises(BadRequest, match=f"--add-host {word}: "):
        resolver_spec(NameWords(add_host=(word,)))

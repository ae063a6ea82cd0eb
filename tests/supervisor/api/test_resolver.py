"""How a container finds names, in requests: checked, stored, shown."""

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.resolver import resolver_message, resolver_of
from supervisor.model.errors import BadRequest
from supervisor.model.resolver import Resolver

ALL = Resolver(("192.0.2.1", "fe80::1%eth0"), ("a.example",), ("ndots:2",), (("db", "2001:db8::1"), ("x_y", "::1")))


def test_what_was_asked_comes_back_as_it_is() -> None:
    for resolver in (ALL, Resolver(), Resolver(of_image=True)):
        assert resolver_of(resolver_message(resolver), of_bundle=False) == resolver
    assert resolver_of(pb.ResolverSpec(), of_bundle=True) == Resolver()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        *((pb.ResolverSpec(servers=[each]), "resolver.servers") for each in ("", "dns", "1.2.3", "::1%\n", "::1% x")),
        *((pb.ResolverSpec(searches=[each]), "resolver.searches") for each in ("", "a b", "a\nb", "x" * 256)),
        *((pb.ResolverSpec(options=[each]), "resolver.options") for each in ("", "a\tb", "\xe4")),
        (pb.ResolverSpec(options=["x"] * 2_000_000), "resolver.options"),
        *(
            (pb.ResolverSpec(hosts=[pb.HostEntry(name=each, address="::1")]), "resolver.hosts")
            for each in ("", "a b", "a\n", "-a", "a" * 257)
        ),
        (pb.ResolverSpec(hosts=[pb.HostEntry(name="a", address="b")]), "resolver.hosts 'b': allowed is an address"),
        (pb.ResolverSpec(of_image=True, servers=["::1"]), "resolver.of_image"),
    ],
)
def test_what_is_no_word_of_those_files_is_refused_by_its_field(message: pb.ResolverSpec, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        resolver_of(message, of_bundle=False)
    assert words in str(caught.value)


def test_a_bundle_brings_its_own_files() -> None:
    with pytest.raises(BadRequest, match="resolver: a bundle brings its own files"):
        resolver_of(pb.ResolverSpec(of_image=True), of_bundle=True)

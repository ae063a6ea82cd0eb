"""How the containers of a Pod find names, as hostAliases, dnsConfig and dnsPolicy have it. Pure.

exitd makes /etc/hosts and /etc/resolv.conf of each container. What is asked for takes the place of the machine's lines
of its kind; Kubernetes adds to them, unless dnsPolicy is None.
"""

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.manifest.fields import Field, Notes, text_of

NO_SEARCH = "."  # resolv.conf(5): the root, in whose place the machine's domains would be
REPLACES = "takes the place of the machine's lines of its kind; Kubernetes adds to them, unless dnsPolicy is None"


def resolver_of(spec: Field, notes: Notes) -> pb.ResolverSpec | None:
    """Return what each container of the pod is asked for with; None if the pod says nothing of it."""
    config, policy = spec.get("dnsConfig"), spec.get("dnsPolicy")
    found = pb.ResolverSpec(
        servers=[each.text() for each in _items(config, "nameservers")],
        searches=[each.text() for each in _items(config, "searches")],
        options=[_option(each) for each in _items(config, "options")],
    )
    if policy is not None and policy.text() == "None":
        if not found.servers:
            policy.refuse(notes, "leaves no server; name some in dnsConfig.nameservers")
        found.searches.extend([] if found.searches else [NO_SEARCH])
    elif config is not None and found.ListFields():
        config.warn(notes, REPLACES)
    for each in _items(spec, "hostAliases"):
        names = each.get("hostnames")
        for name in names.texts() if names is not None else ():
            found.hosts.add(name=name, address=text_of(each.get("ip")))
    return found if found.ListFields() else None


def _items(parent: Field | None, name: str) -> tuple[Field, ...]:
    found = parent.get(name) if parent is not None else None
    return () if found is None else found.items()


def _option(option: Field) -> str:
    name, value = text_of(option.get("name")), text_of(option.get("value"))
    return f"{name}:{value}" if value else name

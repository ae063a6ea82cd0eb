"""A member's shim dies around the calls that join its pod's namespaces: no link leads anywhere, and no exit is lost."""

import os
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from shim import launch
from tests.system import pods
from tests.system.keepers import Keeper, Node
from tests.system.kill_matrix.test_monitors import KILL, Call, calls, judge
from tests.system.pods import SHARED, Pod, namespace_descriptors
from tests.system.processes import open_files
from tests.system.waits import wait_readable


@pytest.fixture
def runc_pod(node: Node, keeper: Keeper) -> Iterator[Pod]:
    with pods.pod(node, keeper) as made:
        yield made


def around_the_join(pod: Pod) -> list[Call]:
    """A shim's calls from the one that first touches a namespace's slot until `created` has been said."""
    trace = pod.node.directory / "trace"
    member = pod.member("trace", SHARED, "/bin/true", shim=pod.node.traced_shim("-o", str(trace)))
    member.start()
    assert wait_readable(member.shim_pidfd)
    pod.finish(member)
    found = calls(trace)
    touched = [i for i, (_, line) in enumerate(found) if re.match(r"\w+\((8|9|10)[,)]", line)]
    linked = [i for i, (_, line) in enumerate(found) if re.match(r'(sym|un)link\("/', line)]
    assert touched[0] < linked[0] and linked[-1] <= touched[-1]
    first, last = touched[0], next(i for i, (_, line) in enumerate(found) if line.startswith("sendmsg(3"))
    return [call for call, _ in found[first : last + 3]]


def test_a_shim_killed_at_any_call_around_the_join_leaves_dead_links_and_loses_no_exit(runc_pod: Pod) -> None:
    keeper, results = runc_pod.keeper, Counter[str]()
    links = [path for path, _ in runc_pod.links("member", SHARED)]
    bundle, joins = runc_pod.bundle("member", SHARED, "/bin/sh", "-c", "exit 43"), runc_pod.links("member", SHARED)
    found = around_the_join(runc_pod)
    files = open_files(keeper.process.pid).keys()
    for call in found:
        shim = runc_pod.node.traced_shim(*call.inject(KILL))
        member = keeper.make("member", bundle, shim=shim, joins=joins, drain_ms=50)
        assert wait_readable(member.shim_pidfd), call
        assert not any(map(os.path.exists, links)), call  # they may be there, and then lead nowhere
        left = sum(map(os.path.lexists, links))
        if isinstance(member.status, launch.Created):
            member.start()
            assert member.ended(), call
            assert "keeper" in judge(str(call), keeper, member), call
        results[f"{left} links, {'created' if member.status else 'not created'}"] += 1
        runc_pod.finish(member)
        assert namespace_descriptors(keeper.process.pid) == [] and keeper.entries() == [], call
        assert open_files(keeper.process.pid).keys() == files, call
    print(len(found), dict(results))
    assert {f"{count} links, not created" for count in range(4)} <= results.keys()
    assert results["0 links, created"] > 0

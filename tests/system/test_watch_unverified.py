"""The owner of a watched directory can name any process there; exitd says whose word that is."""

import json
import os
import pathlib
import shutil

from protos.exitd.v1 import exitd_pb2 as pb
from shim import native
from supervisor.api.client import Client
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.watched import REAPS, end_of, observed, said, stranger

MALLORY = 54321  # a uid of nobody's


def put(root: pathlib.Path, id: str, pid: int, owner: int) -> None:
    """A state file as runc leaves it, by that owner."""
    (root / id).mkdir(mode=0o711)
    text = json.dumps({"id": id, "init_process_pid": pid, "init_process_start": native.process_stat(pid)[2]})
    path = root / id / "state.json"
    path.with_name("new").write_text(text)
    path.with_name("new").chmod(0o600)
    os.chown(path.with_name("new"), owner, owner)
    path.with_name("new").rename(path)
    os.chown(root / id, owner, owner)


def test_a_process_that_is_not_the_directorys_owners_is_marked(
    client: Client, daemon: Daemon, tmp_path: pathlib.Path
) -> None:
    """Its end is true, and reported; whether it was the container of that name, nobody but its owner says."""
    roots = {owner: tmp_path / f"by-{owner}" for owner in (0, MALLORY)}
    for owner, root in roots.items():
        root.mkdir(mode=0o700)
        os.chown(root, owner, owner)
    as_mallory = ["setpriv", f"--reuid={MALLORY}", "--clear-groups", *REAPS]
    with stranger("exit 7") as victims, stranger("exit 8") as of_root, stranger("exit 9", as_mallory) as own:
        put(roots[MALLORY], "paymentservice", victims.pid, MALLORY)
        put(roots[MALLORY], "rootless", own.pid, MALLORY)
        put(roots[0], "trustworthy", of_root.pid, 0)
        for root in roots.values():
            client.watch(pb.WatchRequest(runc_root=str(root)))
        observed(client, str(roots[MALLORY]), 2)
        observed(client, str(roots[0]), 1)
        for process in (victims, of_root, own):
            process.go()
        lie = end_of(client, f"paymentservice@{roots[MALLORY]}")
        truth = end_of(client, f"trustworthy@{roots[0]}")
        his_own = end_of(client, f"rootless@{roots[MALLORY]}")
    assert [said(each) for each in (lie, truth, his_own)] == [(f"exited {code}", "self") for code in (7, 8, 9)]
    assert f"uid {MALLORY} has named this process" in lie.unverified
    assert (truth.unverified, his_own.unverified) == ("", "")
    seen = [each.event for each in client.events(pb.EventsRequest(from_seq=0, no_follow=True))]
    marks = {(each.type, each.id.partition("@")[0]): "unverified" in each.attributes for each in seen if "@" in each.id}
    assert marks["watch", "paymentservice"] and marks["exit", "paymentservice"]
    assert not marks["watch", "trustworthy"] and not marks["exit", "trustworthy"]
    cli = Cli(daemon)
    assert "is not certain" in cli.ok("why", f"paymentservice@{roots[MALLORY]}")
    assert "unverified" in cli.ok("exits", "--id", f"paymentservice@{roots[MALLORY]}")
    for root in roots.values():
        client.end_watch(str(root))
        shutil.rmtree(root)

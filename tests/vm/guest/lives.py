"""Containers that end and containers that go on, and what exitd knows of them: a line of JSON each.

lives.py begin NAME COUNT    COUNT end with codes of their own, each one's end is awaited; COUNT others live on
lives.py kill                SIGKILL for all that run; their ends are awaited
lives.py wait                the ends of all there are, none of which may go on
lives.py ledger              every exit there is
"""

import json
import sys

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, ttrpc_beside

SOCKET = "/run/exitd/exitd.sock"
WAIT_SECONDS = 600.0


def say(exit_: pb.Exit | None) -> None:
    assert exit_ is not None
    told = {"name": exit_.name, "kind": exit_.kind, "code": exit_.code, "signal": exit_.signal, "cause": exit_.cause}
    print(json.dumps(told), flush=True)


def begin(client: Client, name: str, count: int) -> None:
    for number in range(1, count + 1):
        ending = pb.ContainerSpec(name=f"{name}-ends-{number}", args=["sh", "-c", f"exit {number}"], rootfs="/")
        container = client.create(ending).id
        waiting = client.begin_wait(container)
        client.start(container)
        say(waiting.result(WAIT_SECONDS))
        living = pb.ContainerSpec(name=f"{name}-lives-{number}", args=["sleep", "100000"], rootfs="/")
        client.start(client.create(living).id)


def kill(client: Client) -> None:
    for container in client.list(all_of_them=False):
        waiting = client.begin_wait(container.id)
        client.kill(container.id, "KILL")
        say(waiting.result(WAIT_SECONDS))


def main() -> None:
    with Client(SOCKET, ttrpc_beside(SOCKET)) as client:
        match sys.argv[1:]:
            case ["begin", name, count]:
                begin(client, name, int(count))
            case ["kill"]:
                kill(client)
            case ["wait"]:
                for container in client.list(all_of_them=True):
                    say(client.begin_wait(container.id).result(WAIT_SECONDS))
            case ["ledger"]:
                for exit_ in client.exits(pb.ExitsRequest()):
                    say(exit_)


if __name__ == "__main__":
    main()

"""`play`: the pods of Kubernetes manifests, with the options of podman kube play."""

import os
import socket
import uuid
from collections.abc import Callable, Iterable

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.cli import parse
from supervisor.cli.app import complain, connect, exit_code
from supervisor.cli.manifest import kube
from supervisor.cli.manifest.downward import LOOPBACK, NodeFacts
from supervisor.cli.manifest.kube import ManifestSource
from supervisor.cli.manifest.objects import DEPLOYMENT
from supervisor.cli.playing import Interruption, Played, Playing
from supervisor.cli.pods import read_text
from supervisor.cli.securitywords import read_profile
from supervisor.cli.shape import number_of
from supervisor.cli.spec import here
from supervisor.cli.spelling import Spelled
from supervisor.cli.spoken import member_line
from supervisor.model.errors import BadRequest, ExitdError, NoSuchContainer

INIT_SECONDS = 600


@click.command(cls=Spelled)
@click.option("--down", is_flag=True, help="Stop and remove the pods of these files.")
@click.option("--replace", is_flag=True, help="Stop and remove existing pods of these names first.")
@click.option("-w", "--wait", is_flag=True, help="Wait for their end, print every code and name, and remove them.")
@click.option("--runtime", default="", metavar="RUNTIME", help="For all pods; default: runtimeClassName, the daemon's.")
@click.option(
    "--network",
    "--net",
    multiple=True,
    metavar="NAME[,NAME...]",
    help="For all pods: bridge, networks' names, none or host; NAME:ip=ADDRESS; default: the daemon's.",
)
@click.option(
    "--init-timeout",
    type=parse.LimitSeconds(),
    default=INIT_SECONDS,
    metavar="S",
    help=f"Limit for the init containers of a pod, 0 for none; default {INIT_SECONDS}.",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.pass_context
def play(
    ctx: click.Context,
    files: tuple[str, ...],
    down: bool,
    replace: bool,
    wait: bool,
    runtime: str,
    network: tuple[str, ...],
    init_timeout: float,
) -> int:
    """Make the pods of Kubernetes manifests and start them; - is standard input.

    A play that fails or is broken off takes back what it had made.
    """
    if down and (replace or wait):
        raise BadRequest("--down goes with neither --replace nor --wait")
    sources = tuple(map(_source, _without_kube(files)))
    if down:
        return _down(connect(ctx), kube.names(sources), kube.deployments(sources))
    program = os.path.abspath(runtime) if "/" in runtime else runtime
    wanted = kube.play(sources, lambda: str(uuid.uuid4()), program, read_profile, this_node(), network)
    for warning in wanted.warnings:
        complain(warning)
    client = connect(ctx)
    if replace:
        pods = tuple((pod.namespace, pod.name) for pod in wanted.pods)
        if failed := _down(client, pods, kube.deployments(sources), missing=True):
            return failed
    with Interruption() as interruption:
        playing = Playing(client, interruption, init_timeout or None)
        _report(playing.play(wanted))
        return _to_the_end(playing) if wait else 0


def _without_kube(files: tuple[str, ...]) -> tuple[str, ...]:
    """podman's older words for it are `play kube FILE`."""
    return files[1:] if len(files) > 1 and files[0] == "kube" and not os.path.exists("kube") else files


def this_node() -> NodeFacts:
    """Return what a pod may learn of this machine. Its address is that of the way to others; asking for it sends
    nothing."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return NodeFacts(os.uname().nodename, _own_address(), len(os.sched_getaffinity(0)), memory)


def _own_address() -> str:
    for family, somewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as line:
                line.connect((somewhere, 9))
                return str(line.getsockname()[0])
        except OSError:  # no such family here, or no way out
            continue
    return LOOPBACK


def _source(file: str) -> ManifestSource:
    """Relative paths in it begin where exitctl was called, as for every IMAGE."""
    return ManifestSource("standard input" if file == "-" else file, read_text(file), here())


def _report(played: tuple[Played, ...]) -> None:
    """Print podman's lines."""
    for pod in played:
        heading = "Container:" if len(pod.containers) == 1 else "Containers:"
        print("Pod:", pod.id, heading, *pod.containers, "", sep="\n", flush=True)


def _to_the_end(playing: Playing) -> int:
    """Return the first code that is not 0, else 0. A sidecar is ended when no other container needs it any more: its
    code counts for nothing."""
    sidecars = playing.sidecars
    try:
        exits = playing.wait()
        for exit_ in exits:
            print(member_line(exit_), flush=True)
    except KeyboardInterrupt:
        playing.stop()
        raise
    finally:
        playing.take_back()
    counted = (each for each in exits if each.name not in sidecars)
    return next((number for number in map(number_of, counted) if number), 0)


Names = tuple[tuple[str, str], ...]  # each a namespace and a name


def _down(client: Client, pods: Names, deployments: Names, *, missing: bool = False) -> int:
    """Remove all of them, even if some fail; of a Deployment all pods that there are, however many the file says now. A
    pod that does not exist counts as removed."""
    there = {(pod.pause.spec.namespace, pod.pause.spec.name): pod for pod in client.pods()}
    found = {key: there[key] for key in pods if key in there}
    for _, name in (key for key in pods if key not in there and not missing):
        complain(f"no pod {name}: nothing to take down")
    for namespace, name in deployments:
        of_it = {k: pod for k, pod in there.items() if _deployment(pod) == f"{namespace}/{name}"}
        if not (of_it or missing):
            complain(f"no pod of the deployment {name}: nothing to take down")
        found |= of_it
    if missing and not found:
        return 0
    stopped = _each("Pods stopped:", found.values(), lambda pod: client.stop_pod(pod.id))
    removed = _each("Pods removed:", found.values(), lambda pod: client.remove_pod(pod.id, force=True))
    return max(stopped, removed)


def _deployment(pod: pb.Pod) -> str:
    return pod.pause.spec.annotations.get(DEPLOYMENT, "")


def _each(heading: str, found: Iterable[pb.Pod], act: Callable[[pb.Pod], object]) -> int:
    worst = 0
    print(heading)
    for pod in found:
        try:
            act(pod)
        except NoSuchContainer:
            pass  # another client has removed it
        except ExitdError as error:
            complain(f"{pod.spec.name}: {error}")
            worst = max(worst, exit_code(error))
            continue
        print(pod.id, flush=True)
    return worst

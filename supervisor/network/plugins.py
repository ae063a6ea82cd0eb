"""Runs the plugins of a network, one after the other, each within limits of time and output.

A plugin outlives exitd by a limit, however that ends, since some cannot be cut in two. It has a process group of its
own; what it leaves in it is killed. CNI specification, section 2: ADD and CHECK in the order of the list, DEL in the
reverse one.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator

import structlog

from supervisor.model.errors import ToolFailed, ToolMissing
from supervisor.network import calls, files, namespace
from supervisor.network.calls import Endpoint, Verb
from supervisor.network.conflist import NetworkConfig, PluginConfig
from supervisor.runtime.oci import runtime
from supervisor.runtime.oci.runtime import CommandInput

SECONDS = 30.0  # for one plugin
GRACE_MS = 30_000  # when exitd has ended: bridge's second DEL does not find the rules that a first one has left
MOST_ANSWER_BYTES = 1 << 20

log = structlog.get_logger(__name__)


async def add(network: NetworkConfig, endpoint: Endpoint, plugin_dirs: tuple[str, ...]) -> str:
    """Return the last plugin's answer. Raises ToolFailed, ToolMissing, TimedOut, Busy: some plugins may have done their
    part, and DEL undoes it."""
    answer = ""
    for plugin in network.plugins:
        answer = await _call(Verb.ADD, network, plugin, endpoint, plugin_dirs, answer) or answer
        if not calls.is_answer(answer):
            raise ToolFailed(f"network {network.name}: {plugin.type} ADD: its answer is none")
    return answer


async def check(network: NetworkConfig, endpoint: Endpoint, plugin_dirs: tuple[str, ...], result: str) -> None:
    """Ask all plugins whether the attachment is as they have made it. Raises as `add`."""
    if network.checks and network.is_of_04 and result:
        for plugin in network.plugins:
            await _call(Verb.CHECK, network, plugin, endpoint, plugin_dirs, result)


async def delete(network: NetworkConfig, endpoint: Endpoint, plugin_dirs: tuple[str, ...], result: str) -> None:
    """Have every plugin undo its part, also after another one has failed. Raises the first failure, as `add`."""
    failures: list[Exception] = []
    for plugin in reversed(network.plugins):
        try:
            await _call(Verb.DEL, network, plugin, endpoint, plugin_dirs, result if network.is_of_04 else "")
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


def missing(network: NetworkConfig, kind: str, plugin_dirs: tuple[str, ...]) -> ToolMissing:
    return ToolMissing(
        f"network {network.name}: there is no plugin {kind} in {' or '.join(plugin_dirs)}; install "
        "containernetworking-plugins, or what has it",
        network=network.name,
    )


async def _call(
    verb: Verb,
    network: NetworkConfig,
    plugin: PluginConfig,
    endpoint: Endpoint,
    plugin_dirs: tuple[str, ...],
    previous: str,
) -> str:
    """Return what the plugin has printed."""
    what = f"network {network.name}: {plugin.type} {verb}"
    path = await asyncio.to_thread(files.program, plugin.type, plugin_dirs)
    if not path:
        raise missing(network, plugin.type, plugin_dirs)
    text = calls.request(network, plugin, endpoint, previous)
    environment = tuple(calls.environment(verb, endpoint, plugin_dirs).items())
    with namespace.worked_on(endpoint.lock) as lock_fds, _input(text) as stdin_fd:
        given = CommandInput(stdin_fd, environment, lock_fds, alone=True, most_bytes=MOST_ANSWER_BYTES)
        result = await runtime.run([path], timeout_seconds=SECONDS, grace_ms=GRACE_MS, given=given)
    log.debug("plugin", network=network.name, plugin=plugin.type, verb=verb, code=result.returncode)
    if result.returncode:
        raise ToolFailed(f"{what}: {calls.refusal(result.stdout, result.stderr)}", network=network.name)
    return result.stdout.strip()


@contextlib.contextmanager
def _input(text: str) -> Iterator[int]:
    """For the length of the block: a descriptor from which the text is read, which lies in memory alone."""
    fd = os.memfd_create("cni", os.MFD_CLOEXEC)
    try:
        os.write(fd, text.encode())
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)

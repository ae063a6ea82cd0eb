"""The watch of the whole machine: finds the containerds and the runtimes' directories that it has, now and later.

Each is a watch of its own that ends with this one. The state directories of runtimes that a containerd starts come only
where no containerd was found: its own list has the better names. Directories of users are those that their session has
(/run/user), where rootless podman keeps runc's and crun's state.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from supervisor.model.errors import BadRequest, Busy, ExitdError, TimedOut
from supervisor.model.watched import Kind, Target
from supervisor.system.aside import Aside

SEARCH_SECONDS = 30.0  # between two searches
FIRST_SECONDS = 15.0  # that a caller waits for the first
MOST_USERS = 24  # whose runtime directories are watched: places are left for what callers name
MOST_LISTED = 10_000  # users
MOST_SHOWN = 3  # of what is trouble
SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/docker/containerd/containerd.sock",  # dockerd's own, where the system has none
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
)
ROOTS = ("/run/runc", "/run/crun")  # of podman, CRI-O, and of both by hand
CONTAINERDS_ROOTS = ("/run/docker/runtime-runc/moby", "/run/containerd/runc/k8s.io", "/run/containerd/runc/default")
USERS, USERS_ROOTS = "/run/user", ("runc", "crun")

log = structlog.get_logger(__name__)

Found = list[tuple[Kind, str]]


class NodeSearch:
    """`watch` has the watch service take a source that was found; `drop_gone` end the watches of those that are gone,
    before new ones need their places."""

    def __init__(
        self,
        target: Target,
        watch: Callable[[Kind, str, Target], Awaitable[None]],
        drop_gone: Callable[[Target], Awaitable[None]],
        look: Callable[[], Found] | None = None,
        again_seconds: float | None = None,
    ) -> None:
        """`look` finds the sources, in a thread; as a rule those of this machine."""
        self.trouble = ""
        self._look = look or sources
        self._again_seconds = SEARCH_SECONDS if again_seconds is None else again_seconds
        self._target = target
        self._watch = watch
        self._drop_gone = drop_gone
        self._aside = Aside(most_at_once=1)
        self._searched = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Begin to search. The first search has ended when `searched` returns."""
        self._task = asyncio.create_task(self._forever())

    async def searched(self) -> None:
        """Return after the first search, or a limit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await self._searched.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _forever(self) -> None:
        while True:
            try:
                await self._search()
            except Exception as error:
                log.exception("the search for what this machine runs failed")
                self.trouble = str(error)
            self._searched.set()
            await asyncio.sleep(self._again_seconds)

    async def _search(self) -> None:
        trouble = []
        try:
            found = await self._aside.run("the search for what this machine runs", self._look)
        except (TimedOut, Busy) as error:
            self.trouble = str(error)
            return
        try:
            await self._drop_gone(self._target)
        except (ExitdError, OSError) as error:
            trouble.append(f"watches of directories that are gone: {error}")
        watched, left_out = within(found)
        if left_out:
            trouble.append(f"{left_out} directories of users beyond the first {MOST_USERS} are not watched")
        for kind, where in watched:
            try:
                await self._watch(kind, where, self._target)
            except BadRequest as error:  # it has gone meanwhile
                log.info("a source that cannot be watched", where=where, why=str(error))
            except (ExitdError, OSError) as error:
                trouble.append(f"{where}: {error}")
        more = f"; and {len(trouble) - MOST_SHOWN} more" if len(trouble) > MOST_SHOWN else ""
        self.trouble = "; ".join(trouble[:MOST_SHOWN]) + more or (
            "" if found else "no container engine was found on this machine yet"
        )


def sources(base: str = "/") -> Found:
    """Return what there is, by its kind; runs in a thread. `base`: the directory that stands for the machine's root."""
    under = Path(base)
    sockets = [path for path in SOCKETS if _is(under / path[1:], stat.S_ISSOCK)]
    roots = [*ROOTS, *_users_roots(under), *(() if sockets else CONTAINERDS_ROOTS)]
    directories = [path for path in roots if _is(under / path[1:], stat.S_ISDIR)]
    return [*((Kind.CONTAINERD, path) for path in sockets), *((Kind.RUNC_ROOT, path) for path in directories)]


def within(found: Found) -> tuple[Found, int]:
    """Return what is watched of it, and how many directories of users are left out."""
    owners = [where.split("/")[3] if where.startswith(f"{USERS}/") else "" for _, where in found]
    first = {"", *[user for user in dict.fromkeys(owners) if user][:MOST_USERS]}
    watched = [each for each, user in zip(found, owners, strict=True) if user in first]
    return watched, len(found) - len(watched)


def _users_roots(under: Path) -> list[str]:
    try:
        users = sorted(name for name in os.listdir(under / USERS[1:]) if name.isdecimal())
    except OSError:
        return []
    return [f"{USERS}/{user}/{name}" for user in users[:MOST_LISTED] for name in USERS_ROOTS]


def _is(path: Path, kind: Callable[[int], bool]) -> bool:
    """Links are not followed: /run/user is its users'."""
    try:
        return kind(os.lstat(path).st_mode)
    except OSError:
        return False

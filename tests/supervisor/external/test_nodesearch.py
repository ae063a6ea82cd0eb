"""The search for what this machine runs: real files below a directory that stands for the machine's root."""

import socket
from pathlib import Path

from supervisor.external import nodesearch
from supervisor.external.nodesearch import NodeSearch
from supervisor.model.errors import BadRequest, Busy, ExitdError
from supervisor.model.watched import NODE, Kind, Target
from tests.supervisor.fakes import in_loop, until


async def none_gone(by: Target) -> None: ...


def bind(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(path))


def test_a_bare_machine_has_nothing(tmp_path: Path) -> None:
    assert nodesearch.sources(str(tmp_path)) == []


def test_state_directories_of_root_and_of_users_are_found_and_links_are_not_followed(tmp_path: Path) -> None:
    for path in ("run/runc", "run/user/1000/crun", "run/user/x/crun", "run/containerd/runc/k8s.io", "run/other"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "run/user/1000/runc").symlink_to("/run")
    (tmp_path / "run/crun").write_text("")
    roots = [where for kind, where in nodesearch.sources(str(tmp_path)) if kind is Kind.RUNC_ROOT]
    assert roots == ["/run/runc", "/run/user/1000/crun", "/run/containerd/runc/k8s.io"]


def test_a_containerd_stands_for_the_state_directories_of_its_runtimes(tmp_path: Path) -> None:
    for path in ("run/runc", "run/containerd/runc/k8s.io"):
        (tmp_path / path).mkdir(parents=True)
    bind(tmp_path / "run/containerd/containerd.sock")
    (tmp_path / "run/k3s/containerd").mkdir(parents=True)
    (tmp_path / "run/k3s/containerd/containerd.sock").write_text("")
    found = nodesearch.sources(str(tmp_path))
    assert found == [(Kind.CONTAINERD, "/run/containerd/containerd.sock"), (Kind.RUNC_ROOT, "/run/runc")]


def test_the_number_of_users_is_bounded(tmp_path: Path) -> None:
    for user in range(nodesearch.MOST_USERS + 5):
        (tmp_path / f"run/user/{1000 + user}/crun").mkdir(parents=True)
    (tmp_path / "run/user/1000/runc").mkdir()
    (tmp_path / "run/runc").mkdir()
    found = nodesearch.sources(str(tmp_path))
    watched, left_out = nodesearch.within(found)
    assert (len(watched), left_out) == (nodesearch.MOST_USERS + 2, 5)
    assert watched == found[: len(watched)]


@in_loop
async def test_what_cannot_be_watched_is_trouble_what_has_gone_is_none_and_the_rest_is_watched() -> None:
    watched: list[str] = []
    errors: dict[str, ExitdError] = {"/run/runc": Busy("enough"), "/run/crun": BadRequest("gone")}

    async def watch(kind: Kind, where: str, by: Target) -> None:
        if where in errors:
            raise errors[where]
        watched.append(where)

    search = NodeSearch(
        Target(Kind.NODE, NODE), watch, none_gone, lambda: [(Kind.RUNC_ROOT, each) for each in (*errors, "/x")]
    )
    await search.begin()
    await search.searched()
    assert watched == ["/x"]
    assert search.trouble == "/run/runc: enough"
    await search.close()


@in_loop
async def test_it_is_searched_again_and_again() -> None:
    looks: list[int] = []

    def look() -> nodesearch.Found:
        looks.append(1)
        return []

    async def watch(kind: Kind, where: str, by: Target) -> None:
        raise AssertionError(where)

    search = NodeSearch(Target(Kind.NODE, NODE), watch, none_gone, look, again_seconds=0.0)
    await search.begin()
    await until(lambda: len(looks) > 2)
    assert "no container engine" in search.trouble
    await search.close()

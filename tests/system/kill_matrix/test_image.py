"""exitd is killed in the middle of loads, pulls, creates and removals, at its system calls and at random. No half image
is ever listed, nothing stays behind, and what a container stands on is held."""

import contextlib
import os
import pathlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from supervisor.api.client import Client, Unreachable
from supervisor.model.errors import (
    ExitdError,
    ImageInUse,
    NameTaken,
    NoSuchContainer,
    NoSuchImage,
    RuntimeFailed,
    WrongState,
)
from tests.system import images, oracle
from tests.system.daemons import Daemon
from tests.system.images import SMALL_IMAGES, check, check_through, on, small
from tests.system.kill_matrix.calls import CALLS, killed_at_each
from tests.system.kill_matrix.table import row
from tests.system.oracle import Revived
from tests.system.waits import LIMIT_SECONDS, scaled

SEED = 20_264
OF_FILES = ("symlink", "readlink", "link", "fchmodat", "fsetxattr")

pytestmark = pytest.mark.usefixtures("no_image_left")


@pytest.fixture(scope="module")
def daemon(shelf: pathlib.Path, registry: images.Registry) -> Iterator[Daemon]:
    with oracle.warm_daemon(environment=images.plain_http(shelf, registry)) as made:
        yield made


class Life:
    """An image's: fetched, a container made on it, started, removed, and the image too. Killed in between, it goes on
    with the next step."""

    def __init__(self, daemon: Daemon, fetch: Callable[[Client], object]) -> None:
        self.daemon, self.up, self.container = daemon, Revived(daemon), ""
        self.steps = (fetch, self.create, self.start, self.remove, self.remove_image)
        self.failures = Counter[str]()

    def live(self) -> None:
        for step in self.steps:
            try:
                self.up.call(step)
            except Unreachable:  # it may still be about to die
                self.up.patiently(partial(check_through, daemon=self.daemon))
            except ExitdError as error:
                self.failures[type(error).__name__] += 1

    def create(self, client: Client) -> None:
        self.container = client.create(on(small().id)).id

    def start(self, client: Client) -> None:
        client.start(self.container or "none")

    def remove(self, client: Client) -> None:
        client.remove(self.container or "none", force=True)

    def remove_image(self, client: Client) -> None:
        client.remove_image(small().id)


@pytest.mark.parametrize("source", ["archive", "registry"])
def test_exitd_killed_at_any_system_call_of_an_images_life_lists_no_half_and_leaves_nothing(
    daemon: Daemon, shelf: pathlib.Path, registry: images.Registry, source: str
) -> None:
    word = f"docker-archive:{shelf}/0.tar" if source == "archive" else f"docker://{registry.host}/me/small:t0"

    def fetch(client: Client) -> object:
        return client.pull_image(word)

    def life() -> Life:
        lived = Life(daemon, fetch)
        lived.live()
        return lived

    def judge(lived: Life, case: str) -> Counter[str]:
        assert set(lived.failures) <= {"NoSuchImage", "NoSuchContainer", "WrongState", "ImageInUse"}, lived.failures
        check(daemon)
        images.clear(daemon)
        oracle.nothing_left(daemon)
        return lived.failures

    life()  # every thread there is going to be is there
    killed_at_each(daemon, row("image, at calls").count, life, judge, (*CALLS, *OF_FILES), least_deaths=4)


ALLOWED = (NoSuchImage, ImageInUse, NoSuchContainer, NameTaken)


class Crowd:
    """Clients that load, pull, create on and remove the same few images, each as it comes."""

    def __init__(self, daemon: Daemon, shelf: pathlib.Path, registry: images.Registry, seed: int) -> None:
        self.daemon, self.shelf, self.host, self.pick = daemon, shelf, registry.host, random.Random(seed)
        self.done, self.wrong = Counter[str](), list[str]()

    def act(self, verb: str, number: int) -> None:
        try:
            with self.daemon.client() as client:
                getattr(self, verb)(client, number)
        except (*ALLOWED, Unreachable) as error:
            self.done[f"{verb}: {type(error).__name__}"] += 1
        except Exception as error:
            self.wrong.append(f"{verb}: {error!r}")
        else:
            self.done[verb] += 1

    def load(self, client: Client, number: int) -> None:
        client.load_image(f"{self.shelf}/{number}.tar")

    def load_all(self, client: Client, number: int) -> None:
        client.load_image(f"{self.shelf}/layout")

    def pull(self, client: Client, number: int) -> None:
        client.pull_image(f"{self.host}/me/small:t{number}")

    def create(self, client: Client, number: int) -> None:
        container = client.create(on(small(number).id, name=f"n{self.pick.randrange(4)}")).id
        with contextlib.suppress(WrongState, RuntimeFailed, NoSuchContainer):  # somebody removes it already
            client.start(container)

    def create_from_file(self, client: Client, number: int) -> None:
        client.create(on(f"docker-archive:{self.shelf}/{number}.tar"))

    def remove(self, client: Client, number: int) -> None:
        for container in client.list(all_of_them=True):
            with contextlib.suppress(NoSuchContainer):  # somebody else was quicker
                client.remove(container.id, force=True)

    def remove_image(self, client: Client, number: int) -> None:
        client.remove_image(small(number).id)

    def rush(self, pool: ThreadPoolExecutor, count: int) -> None:
        verbs = ("load", "load_all", "pull", "create", "create_from_file", "remove", "remove_image", "remove_image")
        todo = [(self.pick.choice(verbs), self.pick.randrange(SMALL_IMAGES)) for _ in range(count)]
        for work in [pool.submit(self.act, *each) for each in todo]:
            work.result(LIMIT_SECONDS)


def test_all_at_once_on_the_same_images_ends_whole_held_and_with_named_errors_alone(
    daemon: Daemon, shelf: pathlib.Path, registry: images.Registry
) -> None:
    crowd = Crowd(daemon, shelf, registry, SEED)
    with ThreadPoolExecutor(6) as pool:
        for _ in range(3):
            crowd.rush(pool, scaled(800, 24))
            check(daemon)
    assert crowd.wrong == []
    assert {"load", "load_all", "pull", "create", "create_from_file", "remove", "remove_image"} <= set(crowd.done)


def test_exitd_killed_at_random_among_all_of_that_starts_again_with_whole_images_and_true_holds(
    daemon: Daemon, shelf: pathlib.Path, registry: images.Registry
) -> None:
    pick, torn = random.Random(SEED), 0
    for kill in range(scaled(240, 8)):
        crowd = Crowd(daemon, shelf, registry, SEED + kill)
        killer = threading.Timer(pick.uniform(0, 0.6), daemon.kill)
        killer.start()
        with ThreadPoolExecutor(6) as pool:
            crowd.rush(pool, 24)
        killer.join()
        assert crowd.wrong == []
        torn += bool(os.listdir(daemon.root / "images/staging"))
        daemon.start()
        check(daemon)
    assert torn, "no kill came in the middle of a load"

"""A daemon that answers as told, and exitctl run against it in this process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.cli.__main__ import run
from tests.supervisor.cli.fake_attach import FakeAttach, Pty
from tests.supervisor.cli.fake_daemon import FakeDaemon


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str


Exitctl = Callable[..., Outcome]


@pytest.fixture(params=["ttrpc", "grpc"])
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeDaemon]:
    """Whoever asks it does so once over each: exitctl takes what it finds."""
    fake = FakeDaemon(tmp_path, request.param)
    yield fake
    fake.stop()


@pytest.fixture
def pty() -> Iterator[Pty]:
    one = Pty()
    yield one
    one.close()


@pytest.fixture
def attached(daemon: FakeDaemon) -> Iterator[FakeAttach]:
    daemon.answers.Attach = one = FakeAttach()
    yield one
    one.end()  # or its call would close its descriptors in the middle of a later test


@pytest.fixture
def exitctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Exitctl:
    monkeypatch.setenv("EXITD_STATE", str(tmp_path))
    monkeypatch.delenv("EXITD_ADDRESS", raising=False)

    def call(*words: str) -> Outcome:
        capfd.readouterr()
        code = run(words)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call

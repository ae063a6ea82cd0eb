"""A runtime that would leave a seccomp profile out."""

import asyncio
import errno
from pathlib import Path

import pytest

from supervisor.model.errors import Busy, RuntimeFailed
from supervisor.runtime.oci import runtime
from supervisor.runtime.oci.unfiltered import Unfiltered, is_silent
from supervisor.system.aside import Aside

CRUN = "crun version 1.8.1\ncommit: f8a096be\nrundir: /run/crun\nspec: 1.0.0\n+SYSTEMD +SELINUX {}+EBPF +YAJL\n"
RUNC = "runc version 1.1.5\nspec: 1.0.2-dev\ngo: go1.19.8\n"


@pytest.mark.parametrize(
    ("version", "silent"),
    [
        (CRUN.format("+SECCOMP "), False),
        (CRUN.format(""), True),
        (RUNC, False),
        (RUNC + "libseccomp: 2.5.4\n", False),
        ("runsc version release-1\n", False),
        ("", False),
    ],
)
def test_crun_alone_says_nothing_when_it_has_no_seccomp(version: str, silent: bool) -> None:
    assert is_silent(version) is silent


def test_a_program_is_asked_once_until_it_changes(tmp_path: Path) -> None:
    program, asked = tmp_path / "crun", tmp_path / "asked"

    def write(features: str) -> None:
        (new := tmp_path / "new").write_text(f"#!/bin/sh\necho >>{asked}\ncat <<E\n{CRUN.format(features)}E\n")
        new.chmod(0o755)
        new.rename(program)

    async def look() -> None:
        write("+SECCOMP ")
        unfiltered = Unfiltered(Aside())
        await asyncio.gather(*(unfiltered.refuse(str(program)) for _ in range(3)))
        assert asked.read_text() == "\n"
        write("")
        for _ in range(2):
            with pytest.raises(RuntimeFailed, match=f"{program} was built without seccomp"):
                await unfiltered.refuse(str(program))
        assert asked.read_text() == "\n" * 2
        program.unlink()
        await unfiltered.refuse(str(tmp_path / "never-there"))

    asyncio.run(look())


def test_a_program_that_hangs_is_asked_once_at_a_time_and_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hanging := tmp_path / "hanging").touch()
    (other := tmp_path / "other").touch()

    async def look() -> None:
        asked, answer = list[str](), asyncio.Event()

        async def run(words: list[str], **_: object) -> runtime.CommandResult:
            asked.append(words[0])
            if words[0] == str(hanging):
                await answer.wait()
            return runtime.CommandResult(0, CRUN.format(""), "")

        monkeypatch.setattr(runtime, "run", run)
        unfiltered = Unfiltered(Aside())
        waiting = [asyncio.create_task(unfiltered.refuse(str(hanging))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(RuntimeFailed, match="other was built"):
            await unfiltered.refuse(str(other))
        waiting[0].cancel()
        answer.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in found] == [asyncio.CancelledError, RuntimeFailed, RuntimeFailed]
        assert asked == [str(hanging), str(other)]

    asyncio.run(look())


def test_a_program_that_did_not_answer_is_asked_again(tmp_path: Path) -> None:
    program, ready = tmp_path / "crun", tmp_path / "ready"
    program.write_text(f"#!/bin/sh\n[ -e {ready} ] || kill -9 $$\ncat <<E\n{CRUN.format('')}E\n")
    program.chmod(0o755)

    async def look() -> None:
        unfiltered = Unfiltered(Aside())
        await unfiltered.refuse(str(program))
        ready.touch()
        with pytest.raises(RuntimeFailed, match="was built without seccomp"):
            await unfiltered.refuse(str(program))

    asyncio.run(look())


def test_a_program_that_cannot_be_asked_for_want_of_processes_is_not_taken_for_one_with_seccomp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program := tmp_path / "crun").touch()

    async def run(*_: object, **__: object) -> runtime.CommandResult:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(runtime, "run", run)
    with pytest.raises(Busy, match="try again"):
        asyncio.run(Unfiltered(Aside()).refuse(str(program)))

"""How shims are begun: every form of `start`, in every odd way; `-v` and `delete` likewise."""

import asyncio
import os
import pathlib
import signal
from collections.abc import Callable

import pytest
from google.protobuf.any_pb2 import Any

from protos.containerd.runc_pb2 import Options
from supervisor.model.errors import BadRequest, RuntimeMissing, ShimFailed, ShimLost, TimedOut, Unsupported
from supervisor.runtime.foreign_shim import process
from supervisor.runtime.foreign_shim.binary import Shim
from supervisor.runtime.foreign_shim.leaked import end_shim
from supervisor.system.aside import Aside
from tests.supervisor.runtime.foreign_shim.fakerig import SANDBOX, Fakes, run
from tests.supervisor.runtime.foreign_shim.rig import Task
from tests.system.waits import until

OPTIONS = Any(type_url="containerd.runc.v1.Options", value=Options(root="/r").SerializeToString()).SerializeToString()
SOON = 0.3  # a limit that is to run out


async def whole(task: Task) -> None:
    """Started, exited with 7, gone."""
    await task.started()
    assert (await task.exit()).number == 7
    await task.ended()


# -- start


@pytest.mark.parametrize(
    "form, version", [("plain", 2), ("json2", 2), ("json3", 3), ("message", 2), ("message3", 3), ("abstract", 2)]
)
def test_a_shim_is_reached_whichever_form_its_start_prints(form: str, version: int) -> None:
    @run
    async def test(f: Fakes) -> None:
        f.fake.does(start=form)
        task = await f.task("c1").begun()
        assert task.address is not None and task.address.version == version
        await whole(task)

    test()


@pytest.mark.parametrize("form, service", [("plain", "v3"), ("json3", "v2"), ("json3", "v3")])
def test_a_shim_has_the_service_that_it_names_or_the_other_one(form: str, service: str) -> None:
    @run
    async def test(f: Fakes) -> None:
        f.fake.does(start=form, services=[service])
        task = await f.task("c1").begun()
        await task.started()
        assert task.to.service == f"containerd.task.{service}.Task"
        assert (await task.exit()).number == 7
        await task.ended()

    test()


@run
async def test_a_shim_with_neither_service_is_of_no_use(f: Fakes) -> None:
    f.fake.does(services=["v4"])
    task = await f.task("c1").begun()
    for _ in range(2):
        with pytest.raises(Unsupported, match=r"service containerd\.task\.v2\.Task"):
            await task.to.create("c1", task.bundle)
    f.clear()
    await task.swept()
    assert f.dead_sockets_removed() == 1


@run
async def test_a_call_that_a_shim_lacks_is_unsupported_and_changes_nothing(f: Fakes) -> None:
    f.fake.does(refused={"Update": (12, "method Update")})
    task = await f.task("c1").begun()
    await task.to.connect("c1")
    with pytest.raises(Unsupported, match="method Update"):
        await task.to.update("c1", b"{}")
    assert task.to.service == "containerd.task.v2.Task"
    await whole(task)


@run
async def test_success_may_be_said_in_so_many_words(f: Fakes) -> None:
    f.fake.does(explicit_ok=True)
    await whole(await f.task("c1").begun())


BAD = {
    "noise": "deprecated",
    "nothing": "has printed nothing",
    "fails": "no such hypervisor",
}


@pytest.mark.parametrize("form, why", BAD.items())
def test_a_start_that_gives_no_address_is_an_error_that_shows_what_it_printed(form: str, why: str) -> None:
    @run
    async def test(f: Fakes) -> None:
        f.fake.does(start=form)
        task = f.task("c1")
        with pytest.raises(ShimFailed, match=why):
            await task.begun()
        assert await end_shim(task.bundle, "c1", Aside()) == (form != "fails")
        await task.swept()

    test()


@run
async def test_a_shim_that_serves_elsewhere_is_refused(f: Fakes) -> None:
    f.fake.does(start="vsock")
    task = f.task("c1")
    with pytest.raises(Unsupported, match="vsock://3:1024"):
        await task.begun()
    assert await end_shim(task.bundle, "c1", Aside())
    await task.swept()


@run
async def test_a_leaked_shim_with_the_tasks_of_others_stays(f: Fakes) -> None:
    pause = await f.task("c1", **{SANDBOX: "c1"}).begun()
    await pause.started()
    member = f.task("c2", **{SANDBOX: "c1"})
    await process.start(member.shim, member.bundle, b"", Aside())
    assert await end_shim(member.bundle, "c2", Aside())
    await member.swept()
    assert (await pause.exit()).number == 7
    await pause.ended()


@run
async def test_where_no_shim_has_left_an_address_there_is_nothing_to_end(f: Fakes) -> None:
    bundle = f.bundle("c1")
    assert not await end_shim(str(bundle), "c1", Aside())
    for text in ("", "noise", "unix:///none/such", "vsock://3:1"):
        (bundle / "address").write_text(text)
        assert not await end_shim(str(bundle), "c1", Aside())


@run
async def test_a_start_that_hangs_is_killed_at_its_limit(f: Fakes) -> None:
    f.fake.does(start="hangs")
    task = f.task("c1")
    with pytest.raises(TimedOut, match=r"did not end in 0\.3 s"):
        await process.start(task.shim, task.bundle, b"", Aside(), seconds=SOON)
    assert f.processes() == {}
    await task.swept()


@run
async def test_a_start_that_nobody_waits_for_any_more_is_killed(f: Fakes) -> None:
    f.fake.does(start="hangs")
    task = f.task("c1")
    starting = asyncio.create_task(task.begun())
    begun = lambda: any("-publish-binary" in words for words in f.processes().values())  # noqa: E731
    await asyncio.to_thread(until, begun, "no start")
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert starting.cancelled() and f.processes() == {}
    await task.swept()


def test_a_start_whose_child_keeps_the_pipe_has_an_address_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HELD_SECONDS", SOON)

    @run
    async def test(f: Fakes) -> None:
        f.fake.does(start="held")
        await whole(await f.task("c1").begun())

    test()


@run
async def test_a_shim_that_has_died_behind_its_address_is_lost(f: Fakes) -> None:
    f.fake.does(start="late-dead")
    task = f.task("c1")
    with pytest.raises(ShimLost):
        await task.begun()
    assert await task.swept() is not None
    assert f.dead_sockets_removed() == 1


@run
async def test_without_a_log_fifo_a_shim_dies_behind_its_address(f: Fakes) -> None:
    task = f.task("c1")
    os.unlink(f"{task.bundle}/log")
    with pytest.raises(ShimLost):
        await (await task.begun()).to.connect("c1")
    await task.swept()
    assert f.dead_sockets_removed() == 1


@run
async def test_a_shim_that_says_more_than_its_fifo_holds_goes_on(f: Fakes) -> None:
    f.fake.does(log_lines=5000)
    await whole(await f.task("c1").begun())


@run
async def test_events_are_taken_before_a_shim_is_begun(f: Fakes) -> None:
    f.fake.does(eager=True)
    await whole(await f.task("c1").begun())


@run
async def test_the_socket_of_a_dead_shim_is_taken_over(f: Fakes) -> None:
    task = await f.task("c1").begun()
    os.kill((await task.to.connect("c1")).shim_pid, signal.SIGUSR1)
    await task.to.closed.wait()
    await whole(await task.begun())


# -- its era


@pytest.mark.parametrize(
    "version, stdin, options",
    [
        *(("1.6.20", "options", b""), ("1.6.20", "options", OPTIONS)),
        *(("v2.3.1", "message", b""), ("v2.3.1", "message", OPTIONS)),
        *(("kata", "options", OPTIONS), ("kata", "message", OPTIONS), ("fails", "message", b"")),
    ],
)
def test_a_shim_gets_the_options_in_the_form_of_its_time(version: str, stdin: str, options: bytes) -> None:
    @run
    async def test(f: Fakes) -> None:
        f.fake.does(version=version, stdin=stdin)
        await whole(await f.task("c1").begun(options))

    test()


@run
async def test_a_start_of_a_known_time_is_not_tried_in_another_form(f: Fakes) -> None:
    f.fake.does(version="1.6.20", stdin="message")
    task = f.task("c1")
    with pytest.raises(ShimFailed, match="deprecated API"):
        await task.begun()
    await task.swept()


def test_a_shim_that_does_not_report_its_version_is_begun_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ERA_SECONDS", SOON)

    @run
    async def test(f: Fakes) -> None:
        f.fake.does(version="hangs", stdin="message")
        await whole(await f.task("c1").begun())

    test()


@run
async def test_its_version_is_asked_once_until_it_is_another_file(f: Fakes) -> None:
    shim, eras = f.place.shim(f.fake.program, "c1"), []
    for version, is_touched in (("2.3.0", False), ("1.7.0", False), ("1.7.0", True)):
        f.fake.does(version=version)
        if is_touched:
            os.utime(shim.binary, ns=(1, 1))
        eras.append((await process.era_at(shim, Aside())).name)
    assert eras == ["BOOTSTRAP", "BOOTSTRAP", "ANY"]


@run
async def test_a_shim_that_has_been_removed_is_missing(f: Fakes) -> None:
    task = f.task("c1")
    os.unlink(f.fake.program)
    with pytest.raises(RuntimeMissing, match="still installed"):
        await task.begun()
    task.log.close()


# -- delete


@run
async def test_a_delete_that_fails_is_an_error_with_its_words(f: Fakes) -> None:
    f.fake.does(delete="fails")
    with pytest.raises(ShimFailed, match="cannot delete"):
        await f.task("c1").swept()


@pytest.mark.parametrize("way", ["garbage", "nothing"])
def test_a_delete_that_reports_no_end_reports_none(way: str) -> None:
    @run
    async def test(f: Fakes) -> None:
        f.fake.does(delete=way)
        assert await f.task("c1").swept() is None

    test()


def test_the_reason_of_a_delete_that_fails_stands_at_the_end_of_what_it_says(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "c1").mkdir()
    floods = "head -c 200000 /dev/zero | tr '\\0' x >&2; echo the reason >&2; exit 1"
    with pytest.raises(ShimFailed, match=r"the reason$"):
        asyncio.run(process.delete(shell(tmp_path, floods), f"{tmp_path}/c1", seconds=30))


@run
async def test_what_delete_says_besides_does_not_matter(f: Fakes) -> None:
    f.fake.does(delete="noise")
    deleted = await f.task("c1").swept()
    assert deleted is not None and (deleted.pid, deleted.exit_status) == (0, 137)


@run
async def test_a_delete_that_hangs_is_killed_at_its_limit(f: Fakes) -> None:
    f.fake.does(delete="hangs")
    task = f.task("c1")
    with pytest.raises(TimedOut):
        await process.delete(task.shim, task.bundle, seconds=SOON)
    assert f.processes() == {}
    task.log.close()


# -- what is never tried


def shell(tmp_path: pathlib.Path, text: str) -> Shim:
    path = tmp_path / "shim"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return Shim(str(path), "ns", "c1", "/a", "/e")


@pytest.mark.parametrize("bundle", [lambda b: f"{b}/c2", lambda b: f"{b}/c1/", lambda b: "c1"])
def test_a_bundle_must_be_called_like_its_task(tmp_path: pathlib.Path, bundle: Callable[[pathlib.Path], str]) -> None:
    shim = shell(tmp_path, "exit 0")
    work = bundle(tmp_path)
    for call in (process.start(shim, work, b"", Aside()), process.delete(shim, work)):
        with pytest.raises(BadRequest, match="must be an absolute path that ends in the id"):
            asyncio.run(call)


def test_a_bundle_that_is_not_there_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ShimFailed, match="No such file"):
        asyncio.run(process.start(shell(tmp_path, "exit 0"), f"{tmp_path}/c1", b"", Aside()))


def test_a_shim_that_is_killed_has_failed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "c1").mkdir()
    with pytest.raises(ShimFailed, match="signal 9"):
        asyncio.run(process.start(shell(tmp_path, '[ "$1" = -v ] || kill -9 $$'), f"{tmp_path}/c1", b"", Aside()))


def test_a_flood_of_output_is_read_to_its_end_and_kept_in_part(tmp_path: pathlib.Path) -> None:
    (tmp_path / "c1").mkdir()
    with pytest.raises(ShimFailed, match="xxx"):
        asyncio.run(
            process.start(shell(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x"), f"{tmp_path}/c1", b"", Aside())
        )

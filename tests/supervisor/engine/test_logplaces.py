"""Where a container's log goes, and which paths are refused before anything is made."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from shim import plan, programs
from supervisor.api.logspecs import LEFT_OPEN
from supervisor.config.settings import Config
from supervisor.engine import admission, operations
from supervisor.model.errors import BadRequest, ShimFailed, WrongState
from supervisor.model.values import Container, LogDriver, LogMode, LogSpec, Phase, RunKey, Spec
from supervisor.runtime.oci import runplan
from supervisor.streams.logs import WantedLog
from tests.supervisor.engine.test_operations import WEB, obeys, running, serving
from tests.supervisor.happenings import USER

CONFIG = Config(log_driver=LogDriver.JSON_FILE, log_max_size=1 << 20, log_max_files=3)
STRANGER = 65534


def chosen(log: LogSpec, config: Config = CONFIG) -> LogSpec:
    found = admission.with_log(Spec("web", log=log), config).log
    admission.check_log(found)
    return found


def refused(path: Path | str) -> str:
    with pytest.raises(BadRequest) as caught:
        admission.check_path(str(path))
    assert caught.value.metadata["field"] == "log.path"
    return str(caught.value)


# -- what is left open


def test_what_is_left_open_is_as_the_configuration_has_it() -> None:
    assert chosen(LEFT_OPEN) == LogSpec(LogDriver.JSON_FILE, "", 1 << 20, 3)
    assert chosen(LEFT_OPEN, Config()) == LogSpec(LogDriver.CRI, "", 10 << 20, 5)


def test_a_file_of_the_callers_is_not_rotated_by_default_and_is_where_the_configuration_has_another_size() -> None:
    asked = replace(LEFT_OPEN, path="/log")
    assert admission.with_log(Spec("web", log=asked), Config()).log.max_bytes == 0
    assert admission.with_log(Spec("web", log=replace(asked, max_bytes=4096)), Config()).log.max_bytes == 4096
    assert admission.with_log(Spec("web", log=asked), Config(log_max_size=8192)).log.max_bytes == 8192


def test_what_is_said_counts_before_the_configuration() -> None:
    asked = LogSpec(LogDriver.CRI, "", 0, 7, LogMode.NON_BLOCKING, 65_536)
    assert chosen(asked) == asked
    assert chosen(replace(LEFT_OPEN, max_bytes=4096)).max_bytes == 4096


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the journal's socket is, if it is there."""
    monkeypatch.setattr(admission, "JOURNAL", str(tmp_path / "socket"))
    return tmp_path / "socket"


def test_a_host_without_a_journal_is_told_so_before_the_output_is_lost(journal: Path) -> None:
    with pytest.raises(WrongState, match=f"there is no journal here, {journal} is missing"):
        chosen(replace(LEFT_OPEN, driver=LogDriver.JOURNALD))


def test_the_configurations_rotation_is_none_of_a_driver_without_files(journal: Path) -> None:
    journal.touch()
    assert chosen(replace(LEFT_OPEN, driver=LogDriver.JOURNALD)) == LogSpec(LogDriver.JOURNALD)
    of_all = Config(log_driver=LogDriver.JOURNALD)
    with pytest.raises(BadRequest, match="log driver journald writes no file"):
        chosen(replace(LEFT_OPEN, max_bytes=4096), of_all)
    with pytest.raises(BadRequest, match=r"log path /a\.log: .* writes no file"):
        chosen(replace(LEFT_OPEN, path="/a.log"), of_all)


# -- paths


def test_a_file_in_a_directory_of_root_is_fine_whether_it_is_there_or_not(tmp_path: Path) -> None:
    admission.check_path("")
    admission.check_path(f"{tmp_path}/web.log")
    (tmp_path / "web.log").touch()
    admission.check_path(f"{tmp_path}/web.log")


def test_a_path_that_is_relative_or_whose_directory_is_missing_is_refused(tmp_path: Path) -> None:
    assert "is relative" in refused("web/0.log")
    assert f"there is no directory {tmp_path}/none; make it first" in refused(tmp_path / "none" / "web.log")
    (tmp_path / "file").touch()
    assert f"{tmp_path}/file is no directory" in refused(tmp_path / "file" / "web.log")
    assert "Not a directory" in refused(tmp_path / "file" / "below" / "web.log")


def test_a_link_at_the_end_or_on_the_way_is_refused_and_the_way_without_it_is_shown(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to("real")
    assert f"there is a link in {tmp_path}/way; write {tmp_path}/real/web.log" in refused(tmp_path / "way" / "web.log")
    (tmp_path / "web.log").symlink_to("/etc/passwd")
    assert "it is a link, and links are not followed" in refused(tmp_path / "web.log")
    (tmp_path / "web.log").unlink()
    (tmp_path / "web.log").symlink_to("nowhere")
    assert "it is a link" in refused(tmp_path / "web.log")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "no regular file" in refused(tmp_path / "fifo")
    assert "no regular file" in refused(tmp_path)


def test_a_directory_that_somebody_else_could_change_is_refused_on_the_whole_way(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    path = tmp_path / "a" / "b" / "web.log"
    os.chmod(tmp_path / "a", 0o1777)  # sticky: b stays root's, as in /tmp
    admission.check_path(str(path))
    for mode in (0o777, 0o770):
        os.chmod(tmp_path / "a", mode)
        assert f"others than root can write to {tmp_path}/a" in refused(path)
    os.chmod(tmp_path / "a", 0o755)
    os.chmod(tmp_path / "a" / "b", 0o1777)
    assert f"others than root can write to {tmp_path}/a/b" in refused(path)
    os.chmod(tmp_path / "a" / "b", 0o755)
    if os.geteuid() == 0:
        os.chown(tmp_path / "a", STRANGER, STRANGER)
        assert f"{tmp_path}/a does not belong to root" in refused(path)


# -- into the plan

BARE = plan.Plan("c1", 1, ("/runc",), ("/runc",))


def planned(log: LogSpec) -> plan.Plan:
    spec = Spec("web", namespace="prod", log=log)
    made = runplan.with_log(BARE, Container("c1", spec, Phase.CREATED, 1, 0), "/root")
    plan.encode(made)
    return made


def test_the_plan_has_the_log_of_each_driver() -> None:
    assert planned(LogSpec()) == replace(BARE, log="/root/c/c1/container.log")
    assert planned(LogSpec(LogDriver.JSON_FILE)) == replace(BARE, json_log="/root/c/c1/container-json.log")
    assert planned(LogSpec(LogDriver.NONE)) == BARE
    whole = LogSpec(LogDriver.CRI, "/var/log/web.log", 1 << 20, 3, LogMode.NON_BLOCKING, 65_536)
    assert planned(whole) == replace(
        BARE, log="/var/log/web.log", log_bytes=1 << 20, log_files=3, log_mode="non-blocking", buffer=65_536
    )


def test_the_journals_logger_gets_id_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find", lambda name: Path("/opt") / name)
    journal = planned(LogSpec(LogDriver.JOURNALD))
    assert journal == replace(
        BARE, logger=("/opt/exitd-journald",), logger_env=("CONTAINER_ID=c1", "CONTAINER_NAME=web")
    )


def test_a_missing_logger_program_is_reported_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Path:
        raise FileNotFoundError(f"{name} is not installed: run make venv")

    monkeypatch.setattr(programs, "find", missing)
    with pytest.raises(ShimFailed, match="exitd-journald is not installed: run"):
        planned(LogSpec(LogDriver.JOURNALD))


# -- for its readers


def test_a_log_is_where_its_driver_writes_it_and_who_has_none_says_where_to_look(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            obeys(w)
            for log, path in (
                (LogSpec(), "/root/c/{}/container.log"),
                (LogSpec(LogDriver.JSON_FILE), "/root/c/{}/container-json.log"),
                (LogSpec(LogDriver.JSON_FILE, path="/var/log/web.log"), "/var/log/web.log"),
            ):
                id = await running(w, o, replace(WEB, name=f"w{len(w.node.containers)}", log=log))
                source = (await o.log_source(id)).whole
                assert source == WantedLog(path.format(id), log.driver or LogDriver.CRI, is_ours=not log.path)
                assert (await o.inspect(id)).log_path == source.path
            for driver, next_step in (
                (LogDriver.JOURNALD, "log driver journald.*journalctl CONTAINER_ID_FULL={}"),
                (LogDriver.NONE, "log driver none.*exitctl attach other"),
            ):
                id = await running(w, o, replace(WEB, name="other", log=LogSpec(driver)))
                with pytest.raises(WrongState, match=next_step.format(id)):
                    await o.log_source(id)
                assert (await o.inspect(id)).log_path == ""
                await o.remove(id, True, USER)

    asyncio.run(main())


def test_a_log_is_settled_at_once_while_its_run_goes_on_and_with_its_output_or_its_limit_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            obeys(w)
            id = await running(w, o, WEB)
            source, gone = await o.log_source(id), asyncio.Event()
            monkeypatch.setattr(w.manager, "shim_gone", {RunKey(id, 1): gone}.get)
            await source.settled(1)
            w.manager.ends(id)
            await o.wait(id, "exited", 1)
            waiting = asyncio.ensure_future(source.settled(1))
            await asyncio.sleep(0)
            assert not waiting.done()
            gone.set()
            await waiting
            gone.clear()
            monkeypatch.setattr(operations, "SETTLE_SECONDS", 0.01)
            await source.settled(1)

    asyncio.run(main())

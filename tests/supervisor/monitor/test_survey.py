"""Directories on a real file system, looked at and not followed."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from shim.mark import Started
from supervisor.model.adoption import DirectoryEntry, EntryKind, UnknownRun
from supervisor.model.values import Process
from supervisor.monitor import survey
from tests.supervisor.children import child, ends_unreaped, name_of
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.handmade import Handmade

UID = os.geteuid()
DIRECTORY = DirectoryEntry(EntryKind.DIRECTORY, UID)


def only(state: Path, id: str = "box") -> UnknownRun:
    (found,) = survey.look(str(state), id)
    return found


def test_everything_that_a_whole_directory_says_is_read(tmp_path: Path) -> None:
    with child() as init, child() as shim:
        box = Handmade(tmp_path, "box").made(name_of(init)).signed(name_of(shim)).started()
        found = only(tmp_path)
        assert (found.init, found.shim) == (name_of(init), name_of(shim))
    assert found.way == (("c", DIRECTORY), ("box", DIRECTORY), ("1", DIRECTORY))
    assert dict(found.entries)["exit_fifo"] == DirectoryEntry(EntryKind.FIFO, UID)
    files = {name for name, entry in found.entries if entry == DirectoryEntry(EntryKind.FILE, UID)}
    assert files == {"byhand", "plan", "lock", "exit.json", "created", "started"}
    assert (found.mark, found.planned, found.started) == (box.mark, ("box", 1), Started(5, 6))
    assert (found.init_alive, found.recorded, found.unreadable) == (True, False, {})
    assert 0 <= found.quiet_seconds < 60


def test_the_dead_and_strangers_with_their_pids_do_not_live(tmp_path: Path) -> None:
    with child() as process:
        name = name_of(process)
        Handmade(tmp_path, "box").made(Process(name.pid, name.started_ticks + 1)).signed(name)
        assert (only(tmp_path).init_alive, only(tmp_path).shim) == (False, name)
        ends_unreaped(process)
        assert only(tmp_path).shim is None


def test_an_exit_that_is_written_down_is_seen_and_a_torn_one_is_not_believed(tmp_path: Path) -> None:
    box = Handmade(tmp_path, "box").recorded(Process(40, 4), 43)
    assert only(tmp_path).recorded
    whole = (box.path / "exit.json").read_bytes()
    (box.path / "exit.json").write_bytes(whole.replace(b'"code":43', b'"code":44'))
    found = only(tmp_path)
    assert not found.recorded and "checksum" in found.unreadable["exit.json"]


def test_files_that_are_not_what_they_should_be_are_named_and_cost_the_others_nothing(tmp_path: Path) -> None:
    box = Handmade(tmp_path, "box")
    for name in ("byhand", "plan", "created", "started", "lock"):
        (box.path / name).write_bytes(b"nonsense")
    found = only(tmp_path)
    assert (found.mark, found.planned, found.init, found.started, found.shim) == (None, None, None, None, None)
    assert set(found.unreadable) == {"byhand", "plan", "created", "started", "lock"}


def test_a_directory_without_a_run_and_one_with_several_are_reported_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "c" / "empty" / "x").mkdir(parents=True)
    found = only(tmp_path, "empty")
    assert (found.run, found.way) == ("", (("c", DIRECTORY), ("empty", DIRECTORY)))
    Handmade(tmp_path, "box")
    (tmp_path / "c" / "box" / "2").mkdir()
    assert sorted(each.run for each in survey.look(str(tmp_path), "box")) == ["1", "2"]
    assert survey.look(str(tmp_path), "nothing") == survey.look(f"{tmp_path}/nowhere", "box") == []


def test_links_are_seen_as_links_at_every_level(tmp_path: Path) -> None:
    real = Handmade(tmp_path / "elsewhere", "box")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "box").symlink_to(real.path.parent)
    assert only(tmp_path).way[-1] == ("box", DirectoryEntry(EntryKind.LINK, UID))
    (tmp_path / "c" / "box").unlink()
    (tmp_path / "c" / "box").mkdir()
    (tmp_path / "c" / "box" / "1").symlink_to(real.path)
    assert (only(tmp_path).way[-1], only(tmp_path).mark) == (("1", DirectoryEntry(EntryKind.LINK, UID)), None)
    (tmp_path / "c" / "box" / "1").unlink()
    shutil.copytree(real.path, tmp_path / "c" / "box" / "1", ignore=shutil.ignore_patterns("exit_fifo"))
    (tmp_path / "c" / "box" / "1" / "byhand").unlink()
    (tmp_path / "c" / "box" / "1" / "byhand").symlink_to(real.path / "byhand")
    assert dict(only(tmp_path).entries)["byhand"] == DirectoryEntry(EntryKind.LINK, UID)
    assert only(tmp_path).mark is None


def test_a_way_that_is_a_link_at_its_top_is_an_error_and_not_followed(tmp_path: Path) -> None:
    Handmade(tmp_path / "elsewhere", "box")
    (tmp_path / "c").symlink_to(tmp_path / "elsewhere" / "c")
    with pytest.raises(OSError):
        survey.look(str(tmp_path), "box")


def test_what_others_may_write_is_seen(tmp_path: Path) -> None:
    box = Handmade(tmp_path, "box")
    (box.path / "plan").chmod(0o620)
    box.path.parent.chmod(0o702)
    found = only(tmp_path)
    assert dict(found.way)["box"].open_to_others and dict(found.entries)["plan"].open_to_others
    assert not dict(found.entries)["lock"].open_to_others


def test_a_fifo_or_a_socket_in_a_files_place_does_not_hang_the_look(tmp_path: Path) -> None:
    box = Handmade(tmp_path, "box")
    (box.path / "byhand").unlink()
    os.mkfifo(box.path / "byhand")
    (box.path / "plan").unlink()
    with socket.socket(socket.AF_UNIX) as sock:
        before = os.getcwd()
        os.chdir(box.path)
        sock.bind("plan")
        os.chdir(before)
        found = only(tmp_path)
    assert dict(found.entries)["byhand"].kind is EntryKind.FIFO
    assert dict(found.entries)["plan"].kind is EntryKind.OTHER
    assert found.mark is None and found.planned is None


def test_a_name_that_is_no_utf_8_is_looked_at_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    os.mkdir(os.fsencode(tmp_path / "c") + b"/\xff\xfe")
    assert survey.ids(str(tmp_path)) == ["\udcff\udcfe"]
    assert only(tmp_path, "\udcff\udcfe").way[-1] == ("\udcff\udcfe", DIRECTORY)


def test_a_directory_full_of_names_is_read_up_to_a_bound(tmp_path: Path) -> None:
    box = Handmade(tmp_path, "box")
    for number in range(survey.MOST_ENTRIES + 50):
        (box.path / f"n{number}").touch()
    assert len(only(tmp_path).entries) == survey.MOST_ENTRIES


def test_nothing_is_left_open(tmp_path: Path) -> None:
    Handmade(tmp_path, "box").made(Process(1, 1))
    (tmp_path / "c" / "link").symlink_to("box")
    before = held_now()
    for id in ("box", "link", "nothing"):
        survey.look(str(tmp_path), id)
    assert not opened_since(before)

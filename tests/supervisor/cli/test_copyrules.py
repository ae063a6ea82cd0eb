"""Where a copy goes, as docker documents it: every case, and what cannot be."""

import os
import posixpath

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from supervisor.cli import copyrules
from supervisor.cli.copyrules import CopyEnd, CopyTarget
from supervisor.model.errors import BadRequest

NOWHERE, FILE, DIRECTORY = (False, False), (True, False), (True, True)

PLACES = [
    # the source and what it is, the destination and what it is, where it goes
    (("a/f", FILE), ("new", NOWHERE), (".", "new")),
    (("a/f", FILE), ("/x/new", NOWHERE), ("/x", "new")),
    (("a/f", FILE), ("old", FILE), (".", "old")),
    (("a/f", FILE), ("/x/d", DIRECTORY), ("/x/d", "f")),
    (("a/f", FILE), ("/x/d/", DIRECTORY), ("/x/d/", "f")),
    (("a/d", DIRECTORY), ("/new", NOWHERE), ("/", "new")),
    (("a/d", DIRECTORY), ("/x/new/", NOWHERE), ("/x", "new")),
    (("a/d", DIRECTORY), ("/x", DIRECTORY), ("/x", "d")),
    (("a/d/", DIRECTORY), ("/x", DIRECTORY), ("/x", "d")),
    (("a/d/.", DIRECTORY), ("/x", DIRECTORY), ("/x", ".")),
    (("a/d/.", DIRECTORY), ("/x/new", NOWHERE), ("/x", "new")),
    ((".", DIRECTORY), ("/x", DIRECTORY), ("/x", ".")),
    (("/", DIRECTORY), ("x", DIRECTORY), ("x", ".")),
    (("..", DIRECTORY), ("x", DIRECTORY), ("x", ".")),
    (("a/f", FILE), (".", DIRECTORY), (".", "f")),
]


@pytest.mark.parametrize(("source", "destination", "place"), PLACES)
def test_a_copy_goes_where_docker_puts_it(
    source: tuple[str, tuple[bool, bool]], destination: tuple[str, tuple[bool, bool]], place: tuple[str, str]
) -> None:
    ends = (CopyEnd(source[0], *source[1]), CopyEnd(destination[0], *destination[1]))
    assert copyrules.place(*ends) == CopyTarget(*place)


REFUSED = [
    (("f/", FILE), ("x", NOWHERE), "f/: not a directory"),
    (("f/.", FILE), ("x", NOWHERE), "not a directory"),
    (("f", FILE), ("x/", NOWHERE), "no such directory"),
    (("f", FILE), ("x/", FILE), "x/: not a directory"),
    (("d", DIRECTORY), ("x", FILE), "d is a directory, and x is none"),
]


@pytest.mark.parametrize(("source", "destination", "why"), REFUSED)
def test_what_cannot_be_is_refused_by_its_path(
    source: tuple[str, tuple[bool, bool]], destination: tuple[str, tuple[bool, bool]], why: str
) -> None:
    with pytest.raises(BadRequest, match=why):
        copyrules.place(CopyEnd(source[0], *source[1]), CopyEnd(destination[0], *destination[1]))


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("web:/etc/x", ("web", "/etc/x")),
        ("web:x", ("web", "x")),
        ("web:", ("web", "")),
        ("/a:b", ("", "/a:b")),
        ("./a:b", ("", "./a:b")),
        ("dir/a:b", ("", "dir/a:b")),
        (":x", ("", ":x")),
        ("x", ("", "x")),
        ("-", ("", "-")),
    ],
)
def test_a_word_is_a_container_with_a_path_or_a_path(word: str, found: tuple[str, str]) -> None:
    assert copyrules.split(word) == found


@given(st.text("ab./", max_size=12), st.text("ab./", min_size=1, max_size=12), st.booleans(), st.booleans())
def test_a_target_is_one_name_in_a_directory_at_or_above_the_destination(
    source: str, destination: str, is_directory: bool, is_there: bool
) -> None:
    ends = (CopyEnd(source, True, is_directory), CopyEnd(destination, is_there, is_there and is_directory))
    assume(is_there or copyrules.base(destination) != copyrules.HERE)  # what is above or here is there
    try:
        target = copyrules.place(*ends)
    except BadRequest:
        return
    assert "/" not in target.name and target.name not in ("", "..")
    path, directory = (_absolute(each) for each in (destination, target.directory))
    assert directory in (path, os.path.dirname(path))


def _absolute(path: str) -> str:
    return "/" + os.path.normpath(posixpath.join("/cwd", path)).lstrip("/")

"""Who may say which process a container is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.whose import ANY_USER, ROOT, Owners, doubt, names, writer_of

ID = "0123456789abcdef" * 4
MALLORY, VICTIM = 1000, 1001


@pytest.mark.parametrize(
    ("entries", "writer"),
    [
        ([(0, 0o600), (0, 0o711), (0, 0o755)], ROOT),
        ([(1000, 0o600), (1000, 0o700), (1000, 0o700)], 1000),
        ([(0, 0o600), (0, 0o711), (1000, 0o700)], 1000),  # who owns the directory may put another file there
        ([(0, 0o600), (1000, 0o711), (1001, 0o700)], ANY_USER),
        ([(0, 0o600), (0, 0o711), (0, 0o1777)], ANY_USER),
        ([(0, 0o620), (0, 0o711), (0, 0o755)], ANY_USER),
    ],
)
def test_the_writer_is_whoever_could_have_put_the_file_there(entries: list[tuple[int, int]], writer: int) -> None:
    assert writer_of(entries) == writer


@pytest.mark.parametrize(
    ("writer", "cgroup", "owners", "believed"),
    [
        (ROOT, "/anywhere", Owners(), True),
        (MALLORY, f"/user.slice/libpod-{ID}.scope", Owners(VICTIM), True),
        (MALLORY, f"/user.slice/libpod-{ID}.scope/container", Owners(VICTIM), True),
        (MALLORY, f"/docker/{ID}", Owners(0), True),
        (MALLORY, "/system.slice/sshd.service", Owners(0, 0, 0), False),
        (MALLORY, "/user.slice/user-1000.slice/session-1.scope", Owners(MALLORY, 0, 0), True),
        (MALLORY, "/x", Owners(100_000, MALLORY, 0), True),  # root of a user namespace of mallory's
        (MALLORY, "/x", Owners(0, 0, MALLORY), True),  # moved into a cgroup of mallory's
        (MALLORY, "/x", Owners(VICTIM, VICTIM, VICTIM), False),
        (MALLORY, "", Owners(), False),
        (ANY_USER, "/x", Owners(MALLORY, MALLORY, MALLORY), False),
        (ANY_USER, f"/docker/{ID}", Owners(0), True),
    ],
)
def test_another_users_word_needs_the_cgroup_or_a_process_of_that_users(
    writer: int, cgroup: str, owners: Owners, believed: bool
) -> None:
    assert (doubt(ID, writer, cgroup, owners) == "") is believed


@pytest.mark.parametrize(
    ("cgroup", "id", "named"),
    [
        ("/a/cri-containerd-longname.scope", "longname", True),
        ("/a/longname.scope", "longname", True),
        ("/longname", "longname", True),
        ("/longname/a/b", "longname", False),  # whoever is far below it is another's
        ("/a/notlongname.scope", "longname", False),
        ("/a/longname.service", "longname", False),
        ("/a/web", "web", False),  # too short to be more than chance
        ("/", "longname", False),
        ("", "", False),
    ],
)
def test_a_cgroup_names_a_container_by_its_innermost_parts(cgroup: str, id: str, named: bool) -> None:
    assert names(cgroup, id) is named


@given(st.text(), st.integers(), st.text(), st.builds(Owners, st.none() | st.integers()))
def test_whatever_stands_there_nobody_but_root_is_believed_without_evidence(
    id: str, writer: int, cgroup: str, owners: Owners
) -> None:
    believed = not doubt(id, writer, cgroup, owners)
    assert not believed or writer == ROOT or names(cgroup, id) or (writer != ANY_USER and writer == owners.uid)

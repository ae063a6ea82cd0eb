"""Users are looked up in the container's own files."""

import pathlib

import pytest

from supervisor.model.errors import BadRequest
from supervisor.runtime.oci.users import Ids, resolve

PASSWD = """root:x:0:0:root:/root:/bin/sh
# a comment
broken line
worse:x:one:two:::
web:x:33:33::/var/www:/bin/false
1000:x:7:8::/odd:/bin/sh
homeless:x:50:51:::
"""
GROUP = "root:x:0:\nwww:x:33:\nadm:x:4:root,web\ntty:x:5:web\nbad\n"


@pytest.fixture
def rootfs(tmp_path: pathlib.Path) -> str:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text(GROUP)
    return str(root)


@pytest.mark.parametrize(
    ("user", "ids"),
    [
        ("", Ids(0, 0, (4,), "/root")),
        ("0", Ids(0, 0, (4,), "/root")),
        ("web", Ids(33, 33, (4, 5), "/var/www")),
        ("33", Ids(33, 33, (4, 5), "/var/www")),
        ("web:", Ids(33, 33, (4, 5), "/var/www")),
        ("web:tty", Ids(33, 5, (), "/var/www")),
        ("web:12345", Ids(33, 12345, (), "/var/www")),
        (":tty", Ids(0, 5, (), "/root")),
        ("4242", Ids(4242, 0, (), "/")),
        ("4242:4", Ids(4242, 4, (), "/")),
        ("1000", Ids(7, 8, (), "/odd")),
        ("homeless", Ids(50, 51, (), "/")),
        ("4294967294", Ids(4294967294, 0, (), "/")),
    ],
)
def test_a_user_is_a_name_or_a_number_with_or_without_a_group(rootfs: str, user: str, ids: Ids) -> None:
    assert resolve(user, rootfs) == ids


@pytest.mark.parametrize(
    ("user", "image_groups", "groups"),
    [("web:tty", "always", (4,)), ("web:12345", "always", (4, 5)), ("web", "never", ()), ("4242:4", "always", ())],
)
def test_groups_that_list_a_user_are_added_always_or_never(
    rootfs: str, user: str, image_groups: str, groups: tuple[int, ...]
) -> None:
    assert resolve(user, rootfs, image_groups=image_groups).additional_gids == groups


@pytest.mark.parametrize("user", ["nobody-here", "-1", "4294967295", "99999999999", "1 0", "worse", "٣", "#"])
def test_an_unknown_user_is_named(rootfs: str, user: str) -> None:
    with pytest.raises(BadRequest) as caught:
        resolve(user, rootfs)
    assert repr(user) in str(caught.value)


def test_an_unknown_group_is_named(rootfs: str) -> None:
    with pytest.raises(BadRequest, match="no group 'nope' in /etc/group"):
        resolve("web:nope", rootfs)


def test_a_link_out_of_the_root_is_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "passwd").write_text("evil:x:666:666::/:/bin/sh\n")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/passwd").symlink_to("../../passwd")
    with pytest.raises(BadRequest):
        resolve("evil", str(root))


def test_without_any_files_numbers_still_work(tmp_path: pathlib.Path) -> None:
    assert resolve("5:6", str(tmp_path)) == Ids(5, 6, (), "/")
    assert resolve("", str(tmp_path)) == Ids()

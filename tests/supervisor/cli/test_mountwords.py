"""-v, --mount and --tmpfs, from words to a request and back."""

import os

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.mountwords import MountWords, mounts, volume
from supervisor.cli.shape import container_document
from supervisor.cli.spec import RunOptions, container_spec, run_options
from supervisor.model.errors import BadRequest


def test_a_volume_has_an_absolute_source_and_may_have_options() -> None:
    assert volume("/a:/b") == pb.Mount(source="/a", destination="/b")
    assert volume("/a:/b:ro") == pb.Mount(source="/a", destination="/b", read_only=True)
    assert volume("./x:/b:rw").source == os.path.abspath("x")
    assert volume("..:/b").source == os.path.abspath("..")
    assert volume("/a:/b:noexec,ro,rslave,rbind") == pb.Mount(
        source="/a", destination="/b", read_only=True, options=["noexec", "rslave"]
    )


@pytest.mark.parametrize(
    "word",
    [
        *("", "a", "/a:b", "/a:/b:rx", ":/b", "/a:", "/a:/b:ro:noexec", "/a:/b:", "/a:/b:size=1"),
        *("/a:/b:Z", "/a:/b:ro,z"),
    ],
)
def test_what_is_no_volume_is_refused(word: str) -> None:
    with pytest.raises(BadRequest, match="mount"):
        volume(word)


def test_every_way_to_mount_arrives() -> None:
    options = {
        "command": ("/", "true"),
        "volume": ("/a:/b", "data:/v:ro,nocopy", "/own"),
        "mount": (
            "type=bind,src=/c,dst=/d,ro,bind-propagation=rshared",
            "type=bind,source=e,target=/f,readonly=false,bind-nonrecursive",
            "src=other,dst=/w",
            "type=volume,dst=/x,volume-nocopy",
            "src=other,dst=/y,volume-subpath=./a//b,volume-nocopy",
            "type=tmpfs,destination=/g,tmpfs-size=64k,tmpfs-mode=700",
        ),
        "tmpfs": ("/h", "/i:size=1m,mode=0755,exec,ro"),
    }
    spec = container_spec(run_options(options), {})
    assert list(spec.mounts) == [
        pb.Mount(source="/a", destination="/b"),
        pb.Mount(volume="data", destination="/v", read_only=True, no_copy=True),
        pb.Mount(anonymous=True, destination="/own"),
        pb.Mount(source="/c", destination="/d", read_only=True, options=["rshared"]),
        pb.Mount(source=os.path.abspath("e"), destination="/f", options=["bind"]),
        pb.Mount(volume="other", destination="/w"),
        pb.Mount(anonymous=True, destination="/x", no_copy=True),
        pb.Mount(volume="other", destination="/y", sub_path="a/b"),
        pb.Mount(tmpfs=True, destination="/g", size_bytes=64 << 10, mode=0o700),
        pb.Mount(tmpfs=True, destination="/h"),
        pb.Mount(tmpfs=True, destination="/i", size_bytes=1 << 20, mode=0o755, options=["exec"], read_only=True),
    ]
    host = container_document(pb.Container(spec=spec))["HostConfig"]
    assert isinstance(host, dict)
    assert host["Binds"] == [
        "/a:/b:rw",
        "data:/v:ro",
        "/own:rw",
        "/c:/d:ro,rshared",
        f"{os.path.abspath('e')}:/f:rw,bind",
        "other:/w:rw",
        "/x:rw",
        "other/a/b:/y:rw",
    ]
    assert host["Tmpfs"] == {"/g": "rw,size=65536,mode=700", "/h": "rw", "/i": "ro,exec,size=1048576,mode=755"}


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("", "'' is none of bind-nonrecursive"),
        ("type=bind,src=/a", "where"),
        ("type=bind,dst=/b", "of which directory or file"),
        ("type=bind,src=/a,dst=b", "must be an absolute path"),
        ("src=a,dst=/b,tmpfs-size=1m", "type volume has no tmpfs-size"),
        ("type=image,src=a,dst=/b", "type 'image': write type=bind, type=volume or type=tmpfs"),
        ("type=bind,src=/a,dst=/b,ro=perhaps", "'perhaps' is neither true nor false"),
        ("type=bind,src=/a,dst=/b,bind-propagation=up", "'up' is none of private"),
        ("type=bind,src=/a,dst=/b,tmpfs-size=1m", "type bind has no tmpfs-size"),
        ("type=tmpfs,src=/a,dst=/b", "type tmpfs has no source"),
        ("dst=/b,volume-subpath=a", "name the volume: src=NAME"),
        ("src=a,dst=/b,volume-subpath=", "'' is no path in the volume"),
        ("src=a,dst=/b,volume-subpath=./", "'./' is no path in the volume"),
        ("src=a,dst=/b,volume-subpath=/etc", "write it relative, as in DIR/DIR"),
        ("type=bind,src=/a,dst=/b,volume-subpath=c", "type bind has no volume-subpath"),
        ("type=tmpfs,dst=/b,tmpfs-size=much", "much"),
        ("type=tmpfs,dst=/b,tmpfs-mode=rwx", "'rwx' is no mode"),
        ("type=bind,src=/a,dst=/b,consistency=cached", "'consistency' is none of"),
    ],
)
def test_what_is_no_mount_is_refused_with_the_word_and_the_way(word: str, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        mounts(MountWords(mount=(word,)))
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"--mount {word}: ")


@pytest.mark.parametrize("word", ["run", "/run:size=x", "/run:mode=9", "/run:uid=1", ":size=1"])
def test_what_is_no_tmpfs_is_refused(word: str) -> None:
    with pytest.raises(BadRequest, match=f"--tmpfs {word}: "):
        mounts(MountWords(tmpfs=(word,)))


def test_two_mounts_at_one_place_are_refused() -> None:
    with pytest.raises(BadRequest, match="/x: something is to be mounted there twice"):
        mounts(MountWords(volume=("/a:/x",), tmpfs=("/x/",)))


def test_a_container_without_mounts_shows_none() -> None:
    spec = container_spec(RunOptions(command=("/", "true")), {})
    host = container_document(pb.Container(spec=spec))["HostConfig"]
    assert isinstance(host, dict)
    assert (host["Binds"], host["Tmpfs"], host["ShmSize"]) == ([], {}, 64 << 20)


@pytest.mark.parametrize("option", ["U", "idmap"])
def test_a_change_of_owners_is_refused_with_what_to_do_instead(option: str) -> None:
    with pytest.raises(BadRequest, match="chown"):
        mounts(MountWords(volume=(f"data:/srv:{option}",)))

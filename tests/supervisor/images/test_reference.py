"""IMAGE words: each way is known, everything else is answered with the ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.images import reference
from supervisor.images.reference import Archive, ImageDirectory, Layout, Name, Pause, Registry, Stored, parse
from supervisor.model.errors import BadRequest

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("pause", Pause()),
        ("/", ImageDirectory("/")),
        ("/srv//root/../x/", ImageDirectory("/srv/x")),
        ("//srv", ImageDirectory("/srv")),
        (".", ImageDirectory("/here")),
        ("./a b", ImageDirectory("/here/a b")),
        ("../x", ImageDirectory("/x")),
        ("oci:/srv/l", Layout("/srv/l")),
        ("oci:l:1.36", Layout("/here/l", "1.36")),
        ("oci:/l:docker.io/library/busybox:1", Layout("/l", "docker.io/library/busybox:1")),
        ("docker-archive:x.tar", Archive("/here/x.tar")),
        ("docker-archive:/x.tar:busybox", Archive("/x.tar", "busybox:latest")),
        ("docker://busybox", Registry(Name("busybox", "latest"))),
        ("docker://localhost:5000/a/b:c", Registry(Name("localhost:5000/a/b", "c"))),
        (f"docker://a@sha256:{HEX}", Registry(Name("a", "", f"sha256:{HEX}"))),
        ("busybox", Stored("busybox", Name("busybox", "latest"))),
        ("quay.io/a/b:1.2_3-x", Stored("quay.io/a/b:1.2_3-x", Name("quay.io/a/b", "1.2_3-x"))),
        ("cafe", Stored("cafe", Name("cafe", "latest"))),
        (f"sha256:{HEX}", Stored(f"sha256:{HEX}", None)),
        (HEX, Stored(HEX, None)),
    ],
)
def test_each_way_of_naming_an_image_is_understood(word: str, meaning: reference.Reference) -> None:
    assert parse(word, "/here") == meaning


@pytest.mark.parametrize(
    "word",
    [
        *("", "Busybox", "a:b/c", "dir:/x", "oci-archive:/x", "docker-daemon:a:b", "http://x/y"),
        *(
            "oci:",
            "oci:/x:",
            "docker-archive:",
            "docker-archive:/x:",
            "docker-archive:/x:NO",
            "docker://",
            "docker://A",
        ),
        *(
            "busybox:",
            "busybox@",
            "busybox@sha256:12",
            "a b",
            "x/",
            "/x\n",
            "a" * 300,
            "-x",
            "\udcff",
            "/" + "x" * 9000,
        ),
    ],
)
def test_what_is_none_of_them_is_refused_with_all_the_ways(word: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(word, "/here")
    for way in ("pause", "/DIR", "oci:DIR[:TAG]", "docker-archive:FILE", "docker://NAME", "exitctl image ls"):
        assert way in str(caught.value)


@pytest.mark.parametrize("word", ["./x", "oci:x", "docker-archive:x.tar", "."])
def test_a_relative_path_is_refused_where_nobody_knows_what_it_begins_at(word: str) -> None:
    with pytest.raises(BadRequest, match="absolute"):
        parse(word)


def test_a_directory_with_a_colon_cannot_be_the_beginning_of_a_path_that_ends_at_a_colon() -> None:
    with pytest.raises(BadRequest, match="colon"):
        parse("oci:x:tag", "/a:b")


@pytest.mark.parametrize(
    ("stored", "short", "ends"),
    [
        ("docker.io/library/busybox:1", "busybox:1", True),
        ("docker.io/library/busybox:1", "library/busybox:1", True),
        ("docker.io/library/busybox:1", "busybox:2", False),
        ("docker.io/library/busybox", "box", False),
        ("busybox", "library/busybox", False),
    ],
)
def test_a_short_name_is_the_end_of_a_long_one_part_by_part(stored: str, short: str, ends: bool) -> None:
    assert reference.ends_with(reference.parse_name(stored), reference.parse_name(short)) is ends


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("a/b:c", "docker.io/a/b:c"),
        ("localhost/a", "localhost/a:latest"),
        ("r:5000/a", "r:5000/a:latest"),
        ("quay.io/a/b", "quay.io/a/b:latest"),
    ],
)
def test_a_registry_name_is_completed_as_docker_does(name: str, full: str) -> None:
    assert str(reference.canonical(reference.parse_name(name))) == full


WORDS = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="abz019AZ:/.@_-", max_size=40),
    st.builds(
        "{}{}".format, st.sampled_from(["oci:", "docker-archive:", "docker://", "/", "./"]), st.text(max_size=40)
    ),
    st.from_regex(reference._NAME.compiled, fullmatch=True),
)


@given(WORDS)
def test_any_word_has_a_meaning_that_says_the_same_again_or_is_refused(word: str) -> None:
    try:
        meaning = parse(word, "/here")
    except BadRequest:
        return
    assert parse(str(meaning)) == meaning

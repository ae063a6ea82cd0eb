"""Broken JSON is refused with the document and the field; what is right becomes values."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.api.replies import spec_message
from supervisor.images import documents, merge
from supervisor.images.documents import Platform
from supervisor.images.facts import ImageDefaults, Resolved
from supervisor.model.errors import BadImage, BadRequest
from supervisor.model.values import Spec

DIGEST = "sha256:" + "ab" * 32
POINTER = {"digest": DIGEST, "size": 1}
CONFIG = {"os": "linux", "architecture": "arm64", "rootfs": {"type": "layers", "diff_ids": [DIGEST]}}


def config(**process: object) -> bytes:
    return json.dumps({**CONFIG, "config": process}).encode()


def test_what_an_image_says_about_its_process_is_read() -> None:
    text = config(
        **{
            "Entrypoint": ["/e"],
            "Cmd": ["c"],
            "Env": ["A=1"],
            "User": "u:g",
            "WorkingDir": "/w",
            "StopSignal": "SIGINT",
        },
        Labels={"b": "2", "a": None},
        Volumes={"/v": {}},
    )
    parsed = documents.parse_config(text, "c")
    labels = (("a", ""), ("b", "2"))
    assert parsed.config == ImageDefaults(("/e",), ("c",), ("A=1",), "u:g", "/w", "SIGINT", labels, None, ("/v",))
    assert (parsed.diff_ids, parsed.platform) == ((DIGEST,), Platform("linux", "arm64"))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, ()),
        ({"/a/../b//c/": {}, "d": None, "/": {}, "//e": {}, "/b/c": {}}, ("/b/c", "/d", "/e")),
        ({"../../x": {}}, ("/x",)),
    ],
)
def test_volumes_are_absolute_places_below_the_root(said: object, found: tuple[str, ...]) -> None:
    text = json.dumps({**CONFIG, "config": {"Volumes": said}}).encode()
    assert documents.parse_config(text, "c").config.volumes == found


@pytest.mark.parametrize("said", [[], "x", {str(number): {} for number in range(101)}, {"a\0b": {}}])
def test_volumes_that_cannot_be_are_refused(said: object) -> None:
    with pytest.raises(BadImage, match="Volumes"):
        documents.parse_config(json.dumps({**CONFIG, "config": {"Volumes": said}}).encode(), "c")


@pytest.mark.parametrize("process", [None, {}, {"Entrypoint": None, "Cmd": None, "Env": None, "Labels": None}])
def test_null_and_missing_fields_are_empty(process: object) -> None:
    assert documents.parse_config(json.dumps({**CONFIG, "config": process}).encode(), "c").config == ImageDefaults()


def test_the_callers_words_replace_the_command_and_never_the_entrypoint() -> None:
    image = ImageDefaults(entrypoint=("/e", "-x"), cmd=("a", "b"))
    assert (image.args(()), image.args(("w",))) == (("/e", "-x", "a", "b"), ("/e", "-x", "w"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "c: not JSON"),
        (b"[" * 100_000, "c: not JSON"),
        (b"\xff", "c: not JSON"),
        (b"[]", "c: must be an object"),
        (config(Entrypoint="sh"), "c: config.Entrypoint: must be a list"),
        (config(Env=["A=1", 2]), r"c: config.Env\[1\]: must be a text"),
        (config(User=0), "c: config.User: must be a text"),
        (config(User="a\0"), "c: config.User: has a zero byte"),
        (config(User="\ud800"), "c: config.User: has a zero byte or a lone surrogate"),
        (config(Labels=[]), "c: config.Labels: must be an object"),
        (json.dumps({**CONFIG, "rootfs": None}).encode(), "c: rootfs: is missing"),
        (
            json.dumps({**CONFIG, "rootfs": {"diff_ids": ["md5:1"]}}).encode(),
            r"c: rootfs.diff_ids\[0\]: 'md5:1' is not",
        ),
        (json.dumps({**CONFIG, "os": "windows"}).encode(), "c: os: the image is for 'windows'"),
        (json.dumps({**CONFIG, "rootfs": {"diff_ids": [DIGEST] * 501}}).encode(), "has 501 items, more than 500"),
    ],
)
def test_a_broken_configuration_is_refused_with_its_field(text: bytes, words: str) -> None:
    with pytest.raises(BadImage, match=words):
        documents.parse_config(text, "c")


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({}, "m: config: is missing"),
        ({"config": {}}, "m: config.digest: is missing"),
        ({"config": {"digest": DIGEST}}, "m: config.size: is missing"),
        ({"config": {"digest": DIGEST, "size": True}}, "m: config.size: must be a number"),
        ({"config": {"digest": DIGEST, "size": -1}}, "m: config.size: must be a number"),
        ({"config": {"digest": DIGEST.upper(), "size": 1}}, "m: config.digest: .* is not a sha256 digest"),
        ({"config": POINTER}, "m: layers: is missing"),
        ({"config": POINTER, "layers": [POINTER, 5]}, r"m: layers\[1\]: must be an object"),
        (
            {"config": {**POINTER, "mediaType": "application/x"}, "layers": []},
            "m: config.mediaType: 'application/x' is not",
        ),
        ({"schemaVersion": 1, "fsLayers": []}, "m: schemaVersion: docker's old schema 1"),
        ({"mediaType": documents.INDEX_TYPES[0]}, "m: manifests: is missing"),
    ],
)
def test_a_broken_manifest_is_refused_with_its_field(manifest: object, words: str) -> None:
    with pytest.raises(BadImage, match=words):
        documents.parse_manifest(json.dumps(manifest).encode(), "m")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{}", "a: must be a list"),
        (b'[{"Layers": []}]', r"a: \[0\].Config: is missing"),
        (b'[{"Config": "c", "Layers": [1]}]', r"a: \[0\].Layers\[0\]: must be a text"),
        (b'[{"Config": "c", "Layers": [], "RepoTags": {}}]', r"a: \[0\].RepoTags: must be a list"),
    ],
)
def test_a_broken_archive_document_is_refused_with_its_field(text: bytes, words: str) -> None:
    with pytest.raises(BadImage, match=words):
        documents.parse_archive(text, "a")


@pytest.mark.parametrize(
    ("offered", "fits"),
    [
        (None, True),
        (Platform("linux", "arm64"), True),
        (Platform("linux", "arm64", "v8"), True),
        (Platform("linux", "arm64", "v9"), False),
        (Platform("linux", "amd64"), False),
        (Platform("unknown", "unknown"), False),
    ],
)
def test_an_index_entry_is_for_this_host_or_not(offered: Platform | None, fits: bool) -> None:
    assert documents.fits(Platform("linux", "arm64", "v8"), offered) is fits


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(DIGEST),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["config", "layers", "manifests", "rootfs", "diff_ids", "digest", "size", "Env", "os", "platform"]
            ),
            inner,
            max_size=4,
        )
    ),
)


@given(ANY_JSON)
def test_any_document_is_read_or_refused_and_nothing_else(value: object) -> None:
    text = json.dumps(value).encode()
    for parse in (documents.parse_config, documents.parse_manifest, documents.parse_archive):
        try:
            parse(text, "x")
        except BadImage as error:
            assert str(error).startswith("x: ")


@pytest.mark.parametrize(
    ("process", "words"),
    [
        ({"Labels": {"a\ud800": "x"}}, "config.Labels: a key: has a zero byte or a lone surrogate"),
        ({"Labels": {"a": "\udfff"}}, "config.Labels.a: has a zero byte or a lone surrogate"),
        ({"Labels": {"a": "x" * (257 << 10)}}, "config.Labels: has .* bytes, more than 262144"),
        ({"Env": [f"A{n}=" + "x" * 99_000 for n in range(22)]}, "config.Env: has .* bytes, more than 2097152"),
        ({"Healthcheck": {"Test": ["CMD", "x"], "Retries": 2**40}}, "config.Healthcheck.Retries: must be at most"),
        ({"Healthcheck": {"Test": ["CMD", "x"], "Interval": 1}}, "config.Healthcheck.Interval: must be 0, or 1000000"),
        ({"Healthcheck": {"Test": ["CMD", "x"], "Timeout": 2**62}}, "config.Healthcheck.Timeout: must be 0"),
    ],
)
def test_what_no_list_could_show_or_no_row_should_hold_is_refused(process: dict[str, object], words: str) -> None:
    with pytest.raises(BadImage, match=f"c: {words}"):
        documents.parse_config(config(**process), "c")


ANY_TEXT = st.text(st.characters(codec=None), max_size=8)  # lone surrogates too
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("Entrypoint", "Cmd", "Env", "User", "WorkingDir", "StopSignal", "Labels", "Healthcheck")
CHECK = st.fixed_dictionaries(
    {"Test": st.just(["CMD", "x"])},
    optional={name: st.integers(-1, 2**65) | ANY_JSON for name in ("Interval", "Timeout", "Retries", "StartPeriod")},
)


@given(st.dictionaries(st.sampled_from(FIELDS), ANY_JSON | st.lists(ANY_TEXT, max_size=3)), st.none() | CHECK)
def test_whatever_a_configuration_says_it_is_refused_or_can_be_shown(process: dict[str, object], check: object) -> None:
    """A container on it is a message of the API, and that is what every list is made of."""
    if check is not None:
        process = {**process, "Healthcheck": check}
    try:
        parsed = documents.parse_config(config(**process), "c").config
        spec = merge.complete(Spec(name="c", image="i", args=("x",)), Resolved((), parsed, "", ""))
    except (BadImage, BadRequest):
        return
    assert spec_message(spec).SerializeToString()

"""What a caller asked for, over what the image says."""

import pytest

from supervisor.images.facts import ImageDefaults, Resolved
from supervisor.images.merge import complete
from supervisor.model.errors import BadImage, BadRequest
from supervisor.model.secrets import SecretWords
from supervisor.model.values import HealthSpec, Probes, Spec

IMAGE = ImageDefaults(
    entrypoint=("/e", "-x"),
    cmd=("a", "b"),
    env=("A=1", "PATH=/p"),
    user="app",
    workdir="/w",
    stop_signal="SIGINT",
    labels=(("who", "image"), ("x", "1")),
)


def asked(config: ImageDefaults = IMAGE, **fields: object) -> Spec:
    """A request as it comes in: cwd and stop signal left open unless given."""
    spec = Spec(**{"name": "n", "image": "i", "cwd": "", "stop_signal": 0, **fields})  # type: ignore[arg-type]
    return complete(spec, Resolved(("/l",), config, "sha256:1"))


@pytest.mark.parametrize(
    ("args", "entrypoint", "whole"),
    [
        ((), (), ("/e", "-x", "a", "b")),
        (("w",), (), ("/e", "-x", "w")),
        (("w", "v"), ("sh",), ("sh", "w", "v")),
        ((), ("sh",), ("sh",)),  # the image's command belongs to the image's entrypoint
        ((), ("sh", "-c", "true"), ("sh", "-c", "true")),
        (("w",), ("",), ("w",)),
    ],
)
def test_the_command_line_is_the_entrypoint_and_the_command_of_whoever_says_it(
    args: tuple[str, ...], entrypoint: tuple[str, ...], whole: tuple[str, ...]
) -> None:
    spec = asked(args=args, entrypoint=entrypoint)
    assert (spec.args, spec.entrypoint) == (whole, ())
    of_entrypoint = ("/e", "-x") if not entrypoint else tuple(word for word in entrypoint if word)
    assert spec.args[: spec.entrypoint_words] == of_entrypoint


def test_a_word_of_the_images_that_looks_like_one_with_a_secret_is_refused_and_not_replaced() -> None:
    secrets = SecretWords(words=(("a", "hidden"), ("/e", "hidden")))
    with pytest.raises(BadRequest, match="in a secret's place"):
        asked(args=("a",), secrets=secrets)
    assert asked(args=("a",), entrypoint=("/e",), secrets=secrets).args == ("/e", "a")


def test_without_an_image_the_callers_entrypoint_stands_before_the_command() -> None:
    spec = Spec("n", args=("a",), entrypoint=("sh",), rootfs="/")
    assert complete(spec) == Spec("n", args=("sh", "a"), rootfs="/", entrypoint_words=1)
    assert complete(Spec("n", args=("a",), entrypoint=("",), rootfs="/")).args == ("a",)


def test_without_an_image_what_was_left_open_is_as_usual_and_what_was_given_stays() -> None:
    spec = complete(Spec("n", args=("a",), rootfs="/", cwd="", stop_signal=0))
    assert (spec.cwd, spec.stop_signal) == ("/", 15)
    spec = complete(Spec("n", args=("a",), rootfs="/", cwd="/w", stop_signal=2))
    assert (spec.cwd, spec.stop_signal) == ("/w", 2)


@pytest.mark.parametrize(
    "config", [ImageDefaults(), ImageDefaults(cmd=("",)), ImageDefaults(entrypoint=("",), cmd=("a",))]
)
def test_no_command_at_all_is_refused_and_says_where_one_belongs(config: ImageDefaults) -> None:
    with pytest.raises(BadRequest, match="after IMAGE"):
        asked(config)
    assert asked(config, args=("w",), entrypoint=("sh",)).args == ("sh", "w")


def test_the_caller_comes_first_and_the_image_fills_what_was_left_open() -> None:
    own = asked(user="0", cwd="/", stop_signal=15, env=("A=2",), labels=(("who", "me"),))
    assert (own.user, own.cwd, own.stop_signal) == ("0", "/", 15)
    assert own.env == ("A=1", "PATH=/p", "A=2")  # later ones win
    assert own.labels == (("who", "me"), ("x", "1"))
    images = asked()
    assert (images.user, images.cwd, images.stop_signal) == ("app", "/w", 2)
    assert (images.image_id, images.layers) == ("sha256:1", ("/l",))


def test_what_nobody_says_has_the_usual_value() -> None:
    spec = asked(ImageDefaults(cmd=("a",)))
    assert (spec.user, spec.cwd, spec.stop_signal, spec.env, spec.labels) == ("", "/", 15, (), ())


@pytest.mark.parametrize(("workdir", "cwd"), [("app", "/app"), ("/app", "/app"), ("", "/")])
def test_a_relative_working_directory_of_an_image_begins_at_its_root(workdir: str, cwd: str) -> None:
    assert asked(ImageDefaults(cmd=("a",), workdir=workdir)).cwd == cwd


@pytest.mark.parametrize(("text", "number"), [("SIGQUIT", 3), ("quit", 3), ("9", 9), ("RTMIN+3", 37), ("SIGRTMAX", 64)])
def test_every_way_to_write_a_stop_signal_is_understood(text: str, number: int) -> None:
    assert asked(ImageDefaults(cmd=("a",), stop_signal=text)).stop_signal == number


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (ImageDefaults(cmd=("a",), stop_signal="SIGNONE"), "config.StopSignal"),
        (ImageDefaults(cmd=("a",), stop_signal="0"), "config.StopSignal"),
        (ImageDefaults(cmd=("a",), env=("A=1", "B")), r"config.Env\[1\]"),
        (ImageDefaults(cmd=("a",), env=("=x",)), r"config.Env\[0\]"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_with_its_field(config: ImageDefaults, field: str) -> None:
    with pytest.raises(BadImage, match=f"IMAGE i: {field}"):
        asked(config)


def test_a_stop_signal_of_the_callers_does_without_a_broken_one_of_the_image() -> None:
    assert asked(ImageDefaults(cmd=("a",), stop_signal="SIGNONE"), stop_signal=15).stop_signal == 15


def test_probes_stand_in_the_place_of_the_images_check() -> None:
    check = HealthSpec(("true",), 1, 1, 1)
    found = Resolved(("/l",), ImageDefaults(cmd=("a",), health=check), "sha256:1")
    assert complete(Spec("c", image="x"), found).health is not None
    assert complete(Spec("c", image="x", probes=Probes(liveness=check)), found).health is None

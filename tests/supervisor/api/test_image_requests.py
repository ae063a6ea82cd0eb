"""What a request leaves to its image stays open."""

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.requests import spec_of
from supervisor.model.errors import BadRequest

DIGEST = "sha256:" + "a" * 64


def test_with_an_image_what_is_not_said_is_left_to_it() -> None:
    spec = spec_of(pb.ContainerSpec(image="busybox"))
    assert (spec.image, spec.args, spec.cwd, spec.stop_signal, spec.user) == ("busybox", (), "", 0, "")


def test_what_is_said_counts_even_if_it_is_the_usual_value() -> None:
    spec = spec_of(pb.ContainerSpec(image="busybox", cwd="/", stop_signal="SIGTERM", entrypoint=["sh", "-c"]))
    assert (spec.cwd, spec.stop_signal, spec.entrypoint) == ("/", 15, ("sh", "-c"))


@pytest.mark.parametrize(
    ("entrypoint", "args", "fits"),
    [(["sh"], [], True), (["sh"], [""], True), ([""], ["a"], True), ([""], [], False), ([], [""], False)],
)
def test_a_root_file_system_needs_a_command_from_somewhere(entrypoint: list[str], args: list[str], fits: bool) -> None:
    message = pb.ContainerSpec(rootfs="/", args=args, entrypoint=entrypoint)
    if fits:
        assert spec_of(message).entrypoint == tuple(entrypoint)
    else:
        with pytest.raises(BadRequest, match="args"):
            spec_of(message)


def test_an_id_of_an_image_belongs_to_a_word_for_it() -> None:
    assert spec_of(pb.ContainerSpec(image="docker://x", image_id=DIGEST)).image_id == DIGEST
    with pytest.raises(BadRequest, match="image_id"):
        spec_of(pb.ContainerSpec(rootfs="/", args=["a"], image_id=DIGEST))
    for wrong in ("sha256:abc", "a" * 64, "../x"):
        with pytest.raises(BadRequest, match="image_id"):
            spec_of(pb.ContainerSpec(image="x", image_id=wrong))


def test_an_image_excludes_a_root_of_ones_own() -> None:
    for other in (pb.ContainerSpec(image="x", rootfs="/", args=["a"]), pb.ContainerSpec(image="x", bundle="/b")):
        with pytest.raises(BadRequest, match="exactly one"):
            spec_of(other)

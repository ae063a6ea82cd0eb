"""A container with users of its own: what it is inside and on the machine, through all that is done with one."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.idranges import COUNT
from tests.system import images, networks
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.networks import ADDRESS, Net

BASE = 1_879_048_192
FIRST, SECOND = f"{BASE}", f"{BASE + COUNT}"  # of the two ranges that there are


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    with networks.net() as made:
        yield made


@pytest.fixture(scope="module")
def daemon(net: Net) -> Iterator[Daemon]:
    with networks.daemon(net, config=f"[userns]\nbase = {BASE}\ncount = {2 * COUNT}\n") as made:
        made.base.chmod(0o711)
        yield made


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"oci:{images.layout(tmp_path_factory.mktemp('images'), app=images.app())}:app"


@pytest.fixture
def cli(daemon: Daemon, net: Net) -> Iterator[Cli]:
    """Afterwards nothing of a container is left, its range neither."""
    with networks.cli(daemon, net) as made:
        yield made
    assert list(daemon.state.glob("roots/*")) == []


def ids_on_the_machine(cli: Cli, name: str) -> list[str]:
    """The first id of its init's namespace, and whose the process is."""
    status = pathlib.Path(f"/proc/{cli.field(name, '.State.Pid')}/status").read_text()
    uids = next(line for line in status.splitlines() if line.startswith("Uid:"))
    (shown,) = json.loads(cli.ok("inspect", name))[0]["Exitd"]["IDMappings"]["UidMap"]
    return [shown.split(":")[1], uids.split()[1]]


def begin(cli: Cli, name: str, image: str, *words: str) -> None:
    cli.ok("run", "-d", "--name", name, "--userns", "auto", "-u", "0", "--entrypoint", "sleep", *words, image, "1000")


def test_one_is_root_inside_and_nobody_on_the_machine_whatever_is_done_with_it(
    cli: Cli, daemon: Daemon, image: str, tmp_path: pathlib.Path
) -> None:
    begin(cli, "one", image, "--init", "--network", "pods", "-v", "app:/home/app", "-v", "/anonymous")
    assert ids_on_the_machine(cli, "one") == [FIRST, FIRST]
    assert cli.field("one", ".HostConfig.UsernsMode") == "auto"
    look = "id -u; cat /proc/self/uid_map; echo out >/dev/stdout; touch /mine"
    assert cli.ok("exec", "one", "sh", "-c", look).split() == ["0", "0", FIRST, str(COUNT), "out"]
    whose = ("stat", "-c", "%u:%g", "/", "/etc/hosts", "/anonymous", "/home/app", "/mine", "/old/stays")
    assert cli.ok("exec", "one", *whose).split() == ["0:0"] * 3 + ["1000:1000", "0:0", "0:0"]
    assert cli.ok("exec", "-t", "-u", "app", "one", "id", "-u").strip() == "1000"
    assert "eth0" in cli.ok("exec", "one", "ls", "/sys/class/net").split()
    assert cli.field("one", ADDRESS) != ""
    assert cli.ok("stats", "--no-stream", "--format", "{{.PIDs}}", "one") == "2"

    (tmp_path / "copied").write_text("copied\n")
    cli("cp", str(tmp_path / "copied"), "one:/old/new")
    assert cli.ok("exec", "one", "stat", "-c", "%u", "/old/new") == "0"
    assert "A /mine" in cli.ok("diff", "one").splitlines()

    daemon.restart()
    assert ids_on_the_machine(cli, "one") == [FIRST, FIRST]
    begin(cli, "two", image)
    assert ids_on_the_machine(cli, "two") == [SECOND, SECOND]
    refused = cli("run", "--userns", "auto", image)
    assert (refused.code, "all 2 ranges" in refused.err) == (125, True), refused

    cli.ok("commit", "one", "committed")
    plain = ("run", "--rm", "-u", "0", "--entrypoint", "stat", "committed", "-c", "%u:%g", "/mine", "/old/new", "/old")
    assert cli.ok(*plain).split() == ["0:0"] * 3
    cli.ok("stop", "-t", "0", "one")
    assert cli.ok("start", "one") == "one"
    assert cli.ok("exec", "one", *whose).split() == ["0:0"] * 3 + ["1000:1000", "0:0", "0:0"]

    cli.ok("rm", "-f", "one")
    begin(cli, "three", image, "--network", "host", "-v", "app:/home/app")
    assert ids_on_the_machine(cli, "three") == [FIRST, FIRST]
    assert "lo" in cli.ok("exec", "three", "ls", "/sys/class/net").split()


def test_files_that_are_made_for_it_are_its_roots(cli: Cli, daemon: Daemon, image: str) -> None:
    file = pb.MountFile(path="word", content=b"hidden\n", mode=0o400)
    spec = pb.ContainerSpec(
        name="reads",
        image=image,
        user="0",
        userns="auto",
        entrypoint=["sh"],
        args=["-c", "cat /secret/word; stat -c %u:%g /secret/word /memory"],
        mounts=[
            pb.Mount(destination="/secret", files=[file], secret=True),
            pb.Mount(destination="/memory", empty_dir="memory", tmpfs=True),
        ],
    )
    with daemon.client() as client:
        made = client.create(spec)
        assert (made.ids.first, made.ids.count) == (BASE, COUNT)
        client.start(made.id)
        client.begin_wait(made.id).result(30)
    assert cli.ok("logs", "reads").split() == ["hidden", "0:0", "0:0"]


def test_what_cannot_have_users_of_its_own_says_why(cli: Cli, image: str) -> None:
    for words, why in (
        (("--privileged",), "its rights end where its own users do"),
        (("--pid", "host"), "the machine's processes"),
        (("--ipc", "host"), "the machine's ipc"),
        (("--pod", "any"), "the containers of a pod"),
    ):
        said = cli("run", "--userns", "auto", *words, image)
        assert (said.code, why in said.err) == (125, True), said
    for word in ("keep", "keep-id", "keep-id:uid=5"):
        said = cli("run", "--userns", word, image)
        assert (said.code, "podman refuses root's keep-id" in said.err) == (125, True), said
    assert cli.run("--userns", "host", "true").code == 0

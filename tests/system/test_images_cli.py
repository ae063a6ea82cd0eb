"""Images by exitctl: loaded, pulled, imported, run, and removed, with real containers on them."""

import json
import pathlib
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from tests.supervisor.images.building import docker_archive
from tests.system import images
from tests.system.daemons import NOTHING, Daemon, daemon, left
from tests.system.exitctl import EXITCTL, Cli
from tests.system.images import WHAT_APP_SAYS, app, check_store, plain
from tests.system.waits import until

BY_IMAGE = WHAT_APP_SAYS.format("by image")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The same image as a layout, an archive, and a directory made by umoci."""
    base = tmp_path_factory.mktemp("shelf")
    layout = images.layout(base / "layout", app=app(), plain=plain())
    (base / "app.tar").write_bytes(docker_archive((app(), ["me/app:1"])))
    unpack = ["umoci", "raw", "unpack", "--image", f"{layout}:app", str(base / "unpacked")]
    subprocess.run(unpack, check=True, capture_output=True, timeout=60)
    return base


@pytest.fixture(scope="module")
def up(shelf: pathlib.Path, registry: images.Registry) -> Iterator[Daemon]:
    with daemon(environment=images.plain_http(shelf, registry)) as made:
        yield made
        until(lambda: replace(left(made), descriptors=0) == NOTHING, f"left: {left(made)}")


@pytest.fixture
def cli(up: Daemon) -> Iterator[Cli]:
    """With an empty store, before and after."""
    cli = Cli(up)
    yield cli
    images.clear(up)


@pytest.mark.parametrize("word", ["oci:SHELF/layout:app", "docker-archive:SHELF/app.tar", "docker://HOST/me/app:app"])
def test_a_container_runs_as_its_image_says_wherever_that_comes_from(
    cli: Cli, shelf: pathlib.Path, registry: images.Registry, word: str
) -> None:
    word = word.replace("SHELF", str(shelf)).replace("HOST", registry.host)
    for _ in range(2):
        said = cli("run", "--rm", word)
        assert (said.code, said.out, said.err) == (7, BY_IMAGE, "")
    assert cli("run", "--rm", "-e", "CODE=43", word, "x", "y").code == 43
    (image,) = cli.ok("image", "ls", "-q", "--no-trunc").splitlines()
    assert image == app().id


def test_a_registry_is_asked_once_for_a_name_that_is_in_the_store(cli: Cli, registry: images.Registry) -> None:
    word = f"docker://{registry.host}/me/app:app"
    registry.asked.clear()
    cli("run", "--rm", word)
    asked = len(registry.asked)
    assert asked
    assert cli("run", "--rm", word).code == 7
    assert len(registry.asked) == asked
    assert cli.ok("image", "pull", word.removeprefix("docker://")) == app().id
    assert len(registry.asked) > asked


def test_an_image_is_fetched_always_if_it_is_missing_or_never(cli: Cli, registry: images.Registry) -> None:
    word = f"{registry.host}/me/app:app"
    registry.asked.clear()
    said = cli("run", "--rm", "--pull", "never", f"docker://{word}")
    assert (said.code, "no image" in said.err, registry.asked) == (125, True, [])
    assert cli("run", "--rm", word).code == 7
    asked = len(registry.asked)
    assert asked
    for when in ("missing", "never"):
        assert cli("run", "--rm", "--pull", when, word).code == 7
    assert len(registry.asked) == asked
    assert cli("run", "--rm", "--pull", "always", word).code == 7
    assert len(registry.asked) > asked


def test_a_name_that_neither_the_store_nor_its_registry_has_removes_nothing(
    cli: Cli, registry: images.Registry
) -> None:
    it = cli.ok("run", "-d", "--name", "it", "/", "sleep", "100")
    said = cli("run", "-d", "--name", "it", "--replace", f"{registry.host}/me/none:1")
    assert said.code == 125 and "no image '" in said.err and "skopeo could not pull" in said.err
    assert cli.ok("ps", "-aq", "--no-trunc") == it
    cli.ok("rm", "-f", "it")


def test_a_container_of_that_name_is_replaced_if_that_is_asked_for(cli: Cli) -> None:
    (one, other) = (cli.ok("run", "-d", "--replace", "--name", "it", "/", "sleep", "100") for _ in range(2))
    assert cli.ok("ps", "-aq", "--no-trunc") == other != one
    said = cli("run", "--replace", "/", "true")
    assert said.code == 125 and "--replace: which container? Add its --name" in said.err
    said = cli("create", "--replace", "--name", "it", "--cidfile", "/proc/no", "/", "true")
    assert said.code == 125 and cli.ok("ps", "-q", "--no-trunc") == other  # nothing was removed for what cannot be made
    for words in (("--pull", "never", "none:1"), ("--runtime", "none", "/"), ("--network", "nowhere", "/")):
        said = cli("create", "--replace", "--name", "it", *words, "true")
        assert said.code == 125 and cli.ok("ps", "-q", "--no-trunc") == other, said
    said = cli("create", "--replace", "--name", other[:8], "/", "true")  # the beginning of an id is no name
    assert said.code == 0 and cli.ok("ps", "-q", "--no-trunc") == other
    assert cli("create", "--replace", "--name", "it", "--namespace", "elsewhere", "/", "true").code == 0
    assert cli.ok("ps", "-q", "--no-trunc") == other
    cli.ok("rm", "-f", *cli.ok("ps", "-aq").split())


def test_a_directory_is_an_image_without_words_of_its_own(cli: Cli, shelf: pathlib.Path) -> None:
    said = cli("run", "--rm", f"{shelf}/unpacked", "/bin/sh", "-c", "cat /turns/inside; id -u; exit 5")
    assert (said.code, said.out) == (5, "top\n0\n")
    said = cli("run", f"{shelf}/unpacked")
    assert said.code == 125 and "which command?" in said.err
    assert cli("run", "--rm", "/", "sh", "-c", "exit 7").code == 7
    assert cli("run", "--rm", "--rootfs", "/", "--", "sh", "-c", "exit 7").code == 7
    assert cli("ps", "-aq").out == ""


def test_a_stored_image_runs_by_its_name_the_end_of_it_and_its_id(cli: Cli, shelf: pathlib.Path) -> None:
    assert cli.ok("image", "load", f"{shelf}/app.tar") == "Loaded image: me/app:1"
    for word in ("me/app:1", "app:1", app().id[7:19], app().id):
        assert cli("run", "--rm", word).out == BY_IMAGE
    said = cli("run", "--rm", "--pull", "never", "app:2")
    assert said.code == 125 and "no image 'app:2'" in said.err and "docker://NAME" in said.err


def test_what_the_caller_says_stands_over_what_the_image_says(cli: Cli, shelf: pathlib.Path) -> None:
    cli.ok("image", "load", f"{shelf}/app.tar")
    said = cli("run", "--rm", "-u", "0", "-w", "/", "-e", "COLOR=red", "app:1")
    assert said.out == "root:root in /, color red, asked: by image\n"
    said = cli("run", "--rm", "--entrypoint", "/bin/cat", "app:1", "/etc/group")
    assert (said.code, said.out) == (0, images.GROUP.decode())
    assert cli("run", "--rm", "--entrypoint", "", "app:1", "/bin/sh", "-c", "exit 9").code == 9
    said = cli("run", "--rm", "--entrypoint", "", "app:1")
    assert said.code == 125 and "which command?" in said.err
    said = cli("run", "--rm", "-u", "nobody-here", "app:1")
    assert said.code == 125 and "no user 'nobody-here' in /etc/passwd" in said.err


def test_an_images_stop_signal_is_what_stop_sends(cli: Cli, shelf: pathlib.Path) -> None:
    cli.ok("image", "load", f"{shelf}/app.tar")
    for options, code in (((), 11), (("--stop-signal", "KILL"), 137)):
        id = cli.ok("run", "-d", *options, "app:1", "stay")
        until(lambda id=id: "stay" in cli.ok("logs", id), "it does not begin")  # type: ignore[misc]
        cli.ok("stop", id)
        assert cli.ok("wait", id) == str(code)


def test_inspect_shows_image_command_and_labels(cli: Cli, shelf: pathlib.Path) -> None:
    id = cli.ok("create", "--label", "tier=mine", f"oci:{shelf}/layout:app", "x")
    (told,) = json.loads(cli.ok("inspect", id))
    assert (told["Image"], told["Config"]["Image"]) == (app().id, f"oci:{shelf}/layout:app")
    assert (told["Config"]["Entrypoint"], told["Config"]["Cmd"]) == (["/bin/sh", "/entry"], ["x"])
    assert (told["Path"], told["Args"]) == ("/bin/sh", ["/entry", "x"])
    assert (told["Config"]["User"], told["Config"]["WorkingDir"]) == ("app", "/home/app")
    assert told["Config"]["Labels"] == {"made": "by hand", "tier": "mine"}
    assert told["Config"]["StopSignal"] == "SIGUSR1"
    assert cli.ok("ps", "-aq", "--filter", "label=made=by hand") == id[:12]


def test_upper_layers_hide_what_they_say_and_no_container_changes_one(
    cli: Cli, up: Daemon, shelf: pathlib.Path
) -> None:
    cli.ok("image", "load", f"{shelf}/app.tar")
    before = listing(up.root / "images/layers")
    look = "ls old cache turns; cat old/stays; mkdir -p new/dir; touch bin/x old/y; rm -r cache; ls bin/x old/y"
    for _ in range(2):
        said = cli("run", "--rm", "-u", "0", "--entrypoint", "/bin/sh", "-w", "/", "app:1", "-c", look)
        assert said.err == ""
        assert said.out.split() == [
            *("cache:", "new", "old:", "stays", "turns:", "inside"),
            *("top", "bin/x", "old/y"),
        ]
    assert listing(up.root / "images/layers") == before


def listing(root: pathlib.Path) -> list[tuple[str, int, int]]:
    return sorted((str(path), path.lstat().st_mode, path.lstat().st_mtime_ns) for path in root.rglob("*"))


def test_pause_is_an_image_that_needs_no_command(cli: Cli, up: Daemon) -> None:
    id = cli.ok("run", "-d", "pause")
    assert cli.field(id, ".State.Status") == "running"
    assert cli.field(id, ".Config.Image") == "pause"
    assert images.holds(up) == {}
    cli.ok("stop", id)
    assert cli.field(id, ".State.Status") == "exited"


@pytest.mark.parametrize(("storage", "places"), [("disk", ("merged",)), ("tmpfs", ("merged", "scratch"))])
def test_a_container_whose_mounts_went_with_the_host_stands_on_its_image_again(
    cli: Cli, up: Daemon, shelf: pathlib.Path, storage: str, places: tuple[str, ...]
) -> None:
    id = cli.ok("run", "-d", "--storage", storage, f"oci:{shelf}/layout:app")
    assert cli.ok("wait", id) == "7"
    for place in places:
        subprocess.run(["umount", f"{up.root}/c/{id}/rootfs/{place}"], check=True)
    cli.ok("start", id)
    assert cli.ok("wait", id) == "7"
    assert cli.ok("logs", id) == (2 * BY_IMAGE).removesuffix("\n")


def test_a_root_file_system_is_imported_from_a_file_and_from_a_pipe(
    cli: Cli, shelf: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with tarfile.open(tmp_path / "root.tar.gz", "w:gz") as archive:
        archive.add(shelf / "unpacked", ".")
    id = cli.ok("image", "import", str(tmp_path / "root.tar.gz"), "mine:1")
    assert cli("run", "--rm", "mine:1", "/bin/sh", "-c", "cat /cache/new; exit 3").code == 3
    with open(tmp_path / "root.tar.gz", "rb") as stdin:
        command = [EXITCTL, "image", "import", "-"]
        piped = subprocess.run(command, stdin=stdin, env=cli.environment, capture_output=True, text=True, timeout=60)
    assert (piped.stdout, piped.stderr) == (f"{id}\n", "")


def test_ls_shows_names_ids_age_and_size_and_what_shares_a_layer(cli: Cli, up: Daemon, shelf: pathlib.Path) -> None:
    loaded = cli.ok("image", "load", f"{shelf}/layout").splitlines()
    assert loaded == ["Loaded image: layout:app", "Loaded image: layout:plain"]
    cli.ok("image", "load", f"{shelf}/app.tar")
    rows = [line.split() for line in cli.ok("image", "ls").splitlines()]
    assert [row[:3] for row in rows[1:]] == [
        ["layout", "app", app().id[7:19]],
        ["me/app", "1", app().id[7:19]],
        ["layout", "plain", plain().id[7:19]],
    ]
    assert len(list((up.root / "images/layers").iterdir())) == 4


def test_an_image_in_use_stays_and_its_containers_are_named(cli: Cli, shelf: pathlib.Path) -> None:
    cli.ok("image", "load", f"{shelf}/app.tar")
    ids = [cli.ok("create", "app:1") for _ in range(2)]
    for force in ((), ("-f",)):
        said = cli("image", "rm", *force, "app:1")
        assert said.code == 125 and all(id[:12] in said.err for id in ids)
    cli.ok("rm", *ids)
    assert cli.ok("image", "rm", "app:1").splitlines() == ["Untagged: me/app:1", f"Deleted: {app().id}"]
    assert cli("image", "rm", "app:1").code == 125
    assert cli.ok("image", "rm", "-f", "app:1") == ""


def test_an_image_goes_free_with_a_container_that_removes_itself_or_is_refused(cli: Cli, shelf: pathlib.Path) -> None:
    cli.ok("image", "load", f"{shelf}/app.tar")
    assert cli("run", "--rm", "app:1").code == 7
    assert cli("run", "--rm", "--entrypoint", "/nope", "app:1").code == 127
    cli.ok("create", "--name", "taken", "app:1")
    assert "is taken" in cli("create", "--name", "taken", "app:1").err
    cli.ok("rm", "taken")
    until(lambda: cli("image", "rm", "app:1").code == 0, "the image is still held")


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_images_and_who_stands_on_them_outlive_the_daemon(cli: Cli, up: Daemon, shelf: pathlib.Path, how: str) -> None:
    cli.ok("image", "load", f"{shelf}/app.tar")
    id = cli.ok("run", "-d", "app:1", "stay")
    up.kill(*([15] if how == "stop" else []))
    up.start()
    assert id[:12] in cli("image", "rm", "app:1").err
    cli.ok("stop", id)
    cli.ok("start", id)
    with up.client() as client:
        check_store(up, client)
    cli.ok("rm", "-f", id)
    cli.ok("image", "rm", "app:1")


def test_an_exit_on_an_image_is_reported_as_true_as_any(cli: Cli, up: Daemon, shelf: pathlib.Path) -> None:
    cli.ok("image", "load", f"{shelf}/app.tar")
    ids = [cli.ok("create", "-e", f"CODE={code}", "app:1") for code in range(10, 20)]
    for id in ids:
        cli.ok("start", id)
    assert [cli.ok("wait", id) for id in ids] == [str(code) for code in range(10, 20)]
    with up.client() as client:
        exits = [exit_ for id in ids for exit_ in client.exits(pb.ExitsRequest(id=id))]
    assert [exit_.code for exit_ in exits] == list(range(10, 20))


def test_a_working_directory_that_is_gone_is_reported(cli: Cli, tmp_path: pathlib.Path) -> None:
    (tmp_path / "gone").mkdir()
    command = [EXITCTL, "run", "./x", "true"]
    script = 'cd "$0"/gone && rmdir ../gone && exec "$@"'
    said = subprocess.run(
        ["sh", "-c", script, str(tmp_path), *command], env=cli.environment, capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 125 and "not an absolute path" in said.stderr

"""The Debian package: what it needs, what its scripts refuse, its manual pages. What is in it: test_packaging.py. A
node that works with it is in tests/vm/check_package.py."""

import itertools
import pathlib
import re
import shutil
import subprocess

import click
import deb
import manpages
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.__main__ import main as exitd
from supervisor.cli.__main__ import exitctl
from tests.test_packaging import ROOT

WORDS = {"@VERSION@": "1.0-2~deb12", "@SITE@": "/opt/exitd/lib/python3.11"}


def test_each_suite_has_what_its_python_needs_and_nothing_for_another() -> None:
    older, newer = (deb.requirements(deb.SUITES[name]) for name in ("bookworm", "forky"))
    assert [each for each in newer if each not in older] == ["pyasyncore>=1.0.5"]
    assert not [each for each in newer if ";" in each]


def test_what_runs_containers_and_makes_their_networks_is_recommended_and_not_needed() -> None:
    suite = deb.SUITES["trixie"]
    fields = dict(re.findall(r"^([\w-]+): (.*)$", deb.control(suite, "1.0-1~deb13", 5), re.MULTILINE))
    assert fields["Recommends"].split(", ") == ["runc | crun", "containernetworking-plugins", "iptables"]
    assert f"python{suite.python}" in fields["Depends"].split(", ")
    named = [re.split(r"[ |,]+", fields[name]) for name in ("Depends", "Recommends", "Suggests")]
    assert not {*named[2]} & {*named[0], *named[1]}


def test_the_quick_start_installs_what_the_package_recommends() -> None:
    """A machine may be set to install no recommendations."""
    page = (ROOT / "docs/quickstart.md").read_text()
    (line,) = re.findall(r"^apt-get install -y \./build/deb/.*$", page, re.MULTILINE)
    assert {"runc", "containernetworking-plugins", "iptables", "curl"} <= {*line.split()}


def test_a_requirement_that_was_not_fetched_is_found(tmp_path: pathlib.Path) -> None:
    suite = deb.SUITES["forky"]
    for name, needs in (("a", ["B-c>=2", 'd; python_version < "3.12"', 'e; extra == "x"']), ("b_c", [])):
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        lines = [f"Name: {name}", "Version: 1", *(f"Requires-Dist: {need}" for need in needs)]
        (folder / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
    assert deb.unmet(tmp_path, suite) == ["a needs B-c>=2"]
    shutil.rmtree(tmp_path / "b_c-1.dist-info")
    assert deb.unmet(tmp_path, suite) == ["a needs B-c>=2"]


def test_what_an_administrator_may_change_is_a_conffile(tmp_path: pathlib.Path) -> None:
    for name in ("etc/apparmor.d/exitd-default", "usr/share/doc/exitd/README.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    deb._control_files(tmp_path, deb.SUITES["trixie"], "1.0-1~deb13")
    assert (tmp_path / "DEBIAN/conffiles").read_text() == "/etc/apparmor.d/exitd-default\n"


if shutil.which("dpkg"):

    def newer(first: str, second: str) -> bool:
        return subprocess.run(["dpkg", "--compare-versions", first, "gt", second], timeout=60).returncode == 0

    def test_a_later_suite_and_a_later_revision_are_upgrades() -> None:
        versions = [deb.version_of(deb.SUITES[name], 1) for name in ("bookworm", "trixie", "forky")]
        versions.append(deb.version_of(deb.SUITES["bookworm"], 2))
        assert all(newer(later, earlier) for earlier, later in itertools.pairwise(versions))

    @pytest.mark.parametrize(
        ("words", "refused"),
        [
            (("upgrade", "1.0-3~deb12"), True),
            (("upgrade", "2.0-1~deb11"), True),
            (("upgrade", "1.0-1~deb13"), False),
            (("upgrade", "0.9-7~deb12"), False),
            (("abort-upgrade", "1.0-3~deb12"), False),
        ],
    )
    def test_an_older_package_is_refused_before_anything_is_changed(
        tmp_path: pathlib.Path, words: tuple[str, ...], refused: bool
    ) -> None:
        done = subprocess.run([script(tmp_path, "preinst"), *words], capture_output=True, text=True, timeout=60)
        assert (done.returncode == 1, "Nothing was changed" in done.stderr) == (refused, refused), done


def script(directory: pathlib.Path, name: str) -> pathlib.Path:
    """A maintainer's script as it is in a package."""
    text = (ROOT / "debian" / name).read_text()
    for word, value in WORDS.items():
        text = text.replace(word, value)
    assert "@" not in re.sub(r"\$@", "", text)
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", deb.SCRIPTS)
def test_the_scripts_are_those_of_any_shell(tmp_path: pathlib.Path, name: str) -> None:
    subprocess.run(["dash" if shutil.which("dash") else "sh", "-n", script(tmp_path, name)], check=True, timeout=60)
    assert (ROOT / "debian" / name).read_text().startswith("#!/bin/sh\n")


def test_an_upgrade_that_went_wrong_before_a_file_was_changed_restarts_nothing(tmp_path: pathlib.Path) -> None:
    for name, words in (
        ("postinst", ["abort-upgrade", "2"]),
        ("prerm", ["upgrade", "2"]),
        ("postrm", ["upgrade", "2"]),
    ):
        environment = {"PATH": str(tmp_path)}  # with no program at all
        subprocess.run(["/bin/sh", script(tmp_path, name), *words], env=environment, check=True, timeout=60)


def test_every_command_has_a_page_and_completion() -> None:
    names = {name for name, _ in (*manpages.pages(exitctl, 1), *manpages.pages(exitd, 8))}
    assert isinstance(exitctl, click.Group)
    assert names >= {f"exitctl-{name}.1" for name in exitctl.list_commands(click.Context(exitctl))}
    assert names >= {"exitctl.1", "exitctl-image-ls.1", "exitd.8"}
    for shell in manpages.SHELLS:
        assert "_EXITCTL_COMPLETE" in manpages.completion(shell)


def test_the_pages_that_the_units_name_are_there() -> None:
    names = {name for name, _ in (*manpages.pages(exitctl, 1), *manpages.pages(exitd, 8))}
    files = [path for path in (ROOT / "systemd").glob("exitd*.s*") if path.is_file()]
    named = re.findall(r"man:([\w-]+)\((\d)\)", "".join(path.read_text() for path in files))
    assert {f"{name}.{section}" for name, section in named} <= names and named


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]) | st.just("\n")))
def test_no_text_is_an_order_to_roff(text: str) -> None:
    for line in manpages.escaped(text).splitlines():
        assert not line.startswith((".", "'"))
        assert re.fullmatch(r"(?:[^\\]|\\e|\\-|\\&)*", line)


if shutil.which("man"):

    def test_man_shows_every_page_without_a_warning(tmp_path: pathlib.Path) -> None:
        for name, text in (*manpages.pages(exitctl, 1), *manpages.pages(exitd, 8)):
            (tmp_path / name).write_text(text)
        for path in (tmp_path / "exitctl-run.1", tmp_path / "exitctl.1", tmp_path / "exitd.8"):
            words = ["man", "--warnings", "--encoding=UTF-8", "--local-file", str(path)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, env={"LC_ALL": "C.UTF-8"})
            assert (done.returncode, done.stderr) == (0, ""), path.name
            assert "NAME" in done.stdout and "OPTIONS" in done.stdout

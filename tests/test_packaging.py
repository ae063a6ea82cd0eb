"""The way from a clone to an installation: what the host must have, the units, the distributions themselves."""

import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator

import deb
import pytest
import wheels

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ("containerd-shim-exitd-v2", "exitd-journald", "exitd-keeper", "exitd-launch", "exitd-pause", "exitd-shim")
COMMANDS = ("exitctl", "exitd")

# What the scripts themselves call; every other command a test adds by name.
TOOLS = ("sh", "grep", "mktemp", "rm", "dirname", "env", "cat", "chmod")
# A compiler that leaves a program which does nothing.
COMPILES_TO_NOTHING = """
for word; do
	[ "${before:-}" = -o ] && printf '#!/bin/sh\\n' >"$word" && chmod 755 "$word"
	before=$word
done"""
# A compiler in front of the real one, which compiles the same text with the same options once for all tests of a file.
COMPILES_ONCE = """#!/bin/sh
out= before= inputs= words=
for word; do
	if [ "$before" = -o ]; then out=$word
	elif [ -f "$word" ]; then inputs="$inputs $word"
	else case $word in
		-I/*) [ ! -e "${word#-I}/Python.h" ] || words="$words $word" ;; # an environment's own has nothing
		*) words="$words $word" ;;
		esac
	fi
	before=$word
done
key=$({ echo "{real}$words" && cat $inputs $(find shim -name '*.h' | sort); } | sha256sum) && key={kept}/${key%% *}
if ! [ -e "$key" ]; then
	"{real}" "$@" || exit
	cp "$out" "$key.$$" && mv "$key.$$" "$key"
fi
cp "$key" "$out"
"""
INSTALL = "install --yes --no-install-recommends --no-remove -o DPkg::Lock::Timeout=300"
DEBIAN = "ID=debian\n"
FEDORA = 'ID=fedora\nID_LIKE="rhel"\n'


class Host:
    """A machine as .ci/deps sees it: the commands on its PATH, its distribution, its user."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.release = directory / "os-release"
        self.release.write_text(DEBIAN)
        self.apt_log = directory / "apt.log"
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
        self.user(0)
        self.has(
            *(
                "python3",
                "cc",
                "runc",
                "crun",
                "strace",
                "skopeo",
                "umoci",
                "zstd",
                "git",
                "containerd",
                "java",
                "ping",
                "curl",
            ),
            *("ip", "iptables", "bridge", "zsh", "fish", "promtool"),
        )
        self.has("musl-gcc")

    def has(self, *names: str, script: str = "exit 0") -> None:
        for name in names:
            (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.bin / name).chmod(0o755)

    def lacks(self, *names: str) -> None:
        for name in names:
            (self.bin / name).unlink()

    def user(self, uid: int) -> None:
        self.has("id", script=f"echo {uid}")

    def apt(self, script: str = "exit 0") -> None:
        self.has("apt-get", script=f'echo "$@" >>{self.apt_log}\n{script}')

    def apt_calls(self) -> list[str]:
        return self.apt_log.read_text().splitlines() if self.apt_log.exists() else []

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        whole = {"PATH": str(self.bin), "OS_RELEASE": str(self.release), "CNI_PATH": str(self.bin), "HOME": "/", **env}
        return subprocess.run(command, env=whole, cwd=ROOT, capture_output=True, text=True, timeout=60)

    def deps(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run(".ci/deps", *args, **env)


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    host = Host(tmp_path)
    host.apt()
    return host


def test_deps_is_silent_and_installs_nothing_when_everything_is_there(host: Host) -> None:
    done = host.deps()
    assert (done.returncode, done.stdout, done.stderr, host.apt_calls()) == (0, "", "", [])


def test_deps_names_and_installs_what_is_missing_and_removes_nothing(host: Host) -> None:
    host.lacks("runc", "musl-gcc", "cc")
    done = host.deps()
    assert done.returncode == 0
    assert "installing: gcc libc6-dev runc musl-tools\n" in done.stdout
    assert host.apt_calls() == [
        f"{INSTALL} gcc libc6-dev runc musl-tools",
    ]


def test_deps_updates_the_package_lists_when_the_first_try_fails(host: Host) -> None:
    host.lacks("strace")
    host.apt(f'[ "$1" = update ] && : >{host.bin}/updated; [ -e {host.bin}/updated ]')
    assert host.deps().returncode == 0
    assert [call.split(" ")[0] for call in host.apt_calls()] == ["install", "update", "install"]


def test_deps_takes_the_checker_of_alerts_alone_from_its_package(host: Host) -> None:
    """Installed, that package would begin a server."""
    host.lacks("promtool", "runc")
    host.apt('[ "$1" != download ] || : >prometheus_1_amd64.deb')
    host.has("dpkg-deb", script='/bin/mkdir -p "$3/usr/bin" && : >"$3/usr/bin/promtool"')
    (host.bin / "cp").symlink_to("/bin/cp")
    done = host.deps(LOCAL_BIN=str(host.bin))
    assert done.returncode == 0, done.stderr
    assert host.apt_calls() == [f"{INSTALL} runc", "download prometheus"]
    assert (host.bin / "promtool").exists()
    host.lacks("promtool")
    host.apt("exit 100")
    assert host.deps(LOCAL_BIN=str(host.bin)).returncode == 2


def test_deps_says_so_when_apt_cannot_install(host: Host) -> None:
    host.lacks("strace")
    host.apt("exit 100")
    done = host.deps()
    assert (done.returncode, "apt-get could not install: strace" in done.stderr) == (2, True)


def test_with_no_install_deps_lists_the_names_and_exits_2(host: Host) -> None:
    host.lacks("runc", "strace")
    done = host.deps(NO_INSTALL="1")
    assert (done.returncode, host.apt_calls()) == (2, [])
    assert "NO_INSTALL=1 is set. Packages by their Debian names: runc strace\n" in done.stderr


def test_on_another_distribution_deps_lists_the_names_and_exits_2(host: Host) -> None:
    host.lacks("runc")
    host.release.write_text(FEDORA)
    done = host.deps()
    assert (done.returncode, host.apt_calls()) == (2, [])
    assert "this is not a Debian system. Packages by their Debian names: runc\n" in done.stderr


def test_a_user_who_is_not_root_gets_the_names_and_exit_2(host: Host) -> None:
    host.lacks("runc")
    host.user(1000)
    done = host.deps()
    assert (done.returncode, host.apt_calls()) == (2, [])
    assert "this user is not root. Packages by their Debian names: runc\n" in done.stderr


def test_musl_gcc_is_wanted_and_not_needed(host: Host) -> None:
    host.lacks("musl-gcc")
    done = host.deps(NO_INSTALL="1")
    assert (done.returncode, "musl-tools" in done.stderr) == (0, True)


@pytest.mark.parametrize(
    ("answer", "package"), [("venv", "python3-venv"), ("headers", "python3-dev"), ("old", "python3")]
)
def test_deps_asks_python_for_its_parts(host: Host, answer: str, package: str) -> None:
    host.has("python3", script=f"echo {answer}")
    done = host.deps(NO_INSTALL="1")
    assert (done.returncode, done.stderr.split()[-1]) == (2, package)


def test_deps_finds_nothing_missing_in_the_python_that_runs_this(host: Host) -> None:
    done = host.deps(NO_INSTALL="1", PYTHON=sys.executable)
    assert (done.returncode, done.stderr) == (0, "")


def test_building_needs_neither_runc_nor_root_and_installs_nothing(host: Host) -> None:
    host.lacks("runc", "strace", "musl-gcc")
    host.user(1000)
    assert host.deps("--build").returncode == 0
    host.user(0)
    host.lacks("cc")
    done = host.deps("--build")
    assert (done.returncode, "a C compiler" in done.stderr, host.apt_calls()) == (2, True, [])


def test_check_names_the_compiler_it_lacks_and_goes_on_except_in_ci(host: Host) -> None:
    host.lacks("musl-gcc")
    host.has("driverless")
    host.has("gcc", script=COMPILES_TO_NOTHING)
    outside = host.run(".ci/check-c", "driverless", CC="gcc")
    assert "musl-gcc is missing" in outside.stderr
    assert (outside.returncode, "C programs built with glibc" in outside.stdout) == (0, True)
    assert host.run(".ci/check-c", "driverless", CC="gcc", CI="true").returncode == 2


def test_a_program_that_runs_where_there_is_no_library_is_never_built_dynamic(
    host: Host, tmp_path: pathlib.Path
) -> None:
    host.has("no-static-cc", script=f'case " $* " in *" -static "*) exit 1 ;; esac\n{COMPILES_TO_NOTHING}')
    command = [sys.executable, "setup.py", "--quiet", "build_scripts", "--build-dir", str(tmp_path / "out")]
    env = {**os.environ, "EXITD_CC": str(host.bin / "no-static-cc")}
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0 and "exitd-pause, which must be static" in done.stderr, done
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(PROGRAMS) - {"exitd-pause"}


def test_make_help_lists_every_target_a_person_calls() -> None:
    done = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    listed = {line.split(" ")[0] for line in done.stdout.splitlines()}
    tests = "test unit system options check ci smoke"
    others = "help deps venv demo bench compare compare-check rig attack soak deb wheels vm vm-test api clean"
    assert listed == {*tests.split(), *others.split()}


@pytest.mark.parametrize(("ci", "status", "outcome"), [("true", 1, "1 failed, 1 error"), ("", 0, "2 skipped")])
def test_a_skipped_test_is_a_failure_in_ci(tmp_path: pathlib.Path, ci: str, status: int, outcome: str) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.skip\ndef test_one(): ...\n\ndef test_two():\n    pytest.skip('late')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "CI": ci},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, outcome in done.stdout) == (status, True), done.stdout


def unit(name: str) -> dict[str, list[str]]:
    """All settings of a unit, each with its values in order."""
    settings: dict[str, list[str]] = {}
    for line in (ROOT / "systemd" / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            settings.setdefault(key, []).append(value)
    return settings


def test_the_keeper_unit_lets_shims_and_containers_outlive_the_keeper() -> None:
    keeper = unit("exitd-keeper.service")
    assert keeper["KillMode"] == ["process"]
    assert keeper["OOMPolicy"] == ["continue"]
    assert keeper["OOMScoreAdjust"] == ["-999"]
    assert keeper["Restart"] == ["always"]
    assert keeper["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert keeper["ExecStart"] == ["/opt/exitd/bin/exitd-keeper --state /run/exitd --stay"]


def test_both_units_keep_the_state_directory_when_they_stop() -> None:
    for name in ("exitd.service", "exitd-keeper.service"):
        assert (unit(name)["RuntimeDirectory"], unit(name)["RuntimeDirectoryPreserve"]) == (["exitd"], ["yes"])


def test_the_daemon_starts_after_the_keeper_and_does_not_need_it() -> None:
    daemon = unit("exitd.service")
    assert daemon["Wants"] == ["exitd-keeper.service"]
    assert "exitd-keeper.service" in daemon["After"][0].split()
    assert daemon.keys().isdisjoint({"Requires", "BindsTo", "PartOf"})


def test_the_daemon_reads_its_configuration_again_when_systemd_says_so() -> None:
    daemon = unit("exitd.service")
    assert (daemon["Type"], daemon["ExecReload"]) == (["notify"], ["/bin/kill -HUP $MAINPID"])
    assert daemon["ConfigurationDirectory"] == ["exitd"]


def test_the_daemon_has_no_mount_namespace_of_its_own() -> None:
    private = {"PrivateTmp", "PrivateDevices", "PrivateMounts", "ProtectSystem", "ProtectHome", "ReadOnlyPaths"}
    assert unit("exitd.service").keys().isdisjoint(private)


# From here on: whole distributions.


def run(*command: str | pathlib.Path, cwd: pathlib.Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def copied(to: pathlib.Path) -> pathlib.Path:
    """The tree without what was built in it, as a fresh clone has it."""
    built = ("build", "dist", "_bin", "*.so", "*.o", "*_pb2.py*", "*.egg-info", "__pycache__", "_native.c", ".?*_cache")
    ignored = shutil.ignore_patterns(".git", ".venv", ".hypothesis", "docs", "tests", *built)
    return pathlib.Path(shutil.copytree(ROOT, to, ignore=ignored))


def environment(at: pathlib.Path) -> pathlib.Path:
    """An environment that borrows the libraries of the one running this; returns its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", at, cwd=at.parent)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = pathlib.Path(pytest.__file__).resolve().parent.parent
    (at / "lib" / version / "site-packages" / "borrowed.pth").write_text(f"{libraries}\n")
    return at / "bin" / "python"


def pip_into(python: pathlib.Path, *args: str | pathlib.Path) -> None:
    flags = (
        "--quiet",
        "--no-compile",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--disable-pip-version-check",
    )
    run(sys.executable, "-m", "pip", "--python", python, "install", *flags, *args, cwd=python.parent)


def assert_complete(python: pathlib.Path, package_root: pathlib.Path) -> None:
    """All commands are beside the Python, and all packages load from `package_root`, the compiled parts included."""
    bin_directory = python.parent
    for name in (*COMMANDS, *PROGRAMS):
        assert os.access(bin_directory / name, os.X_OK), f"{name} is not in {bin_directory}"
    for name in PROGRAMS:
        assert (bin_directory / name).read_bytes().startswith(b"\x7fELF")
    where = (
        "import shim.native, supervisor.model.values, protos.exitd.v1.exitd_pb2 as pb, shim._native as n;"
        "import shim.programs as p;"
        "print(n.__file__, pb.__file__, supervisor.__file__, p.find('exitd-shim'), sep='\\n')"
    )
    *loaded, program = run(python, "-c", where, cwd=pathlib.Path("/")).splitlines()
    assert all(pathlib.Path(path).is_relative_to(package_root) for path in loaded), loaded
    assert pathlib.Path(program) == bin_directory / "exitd-shim"
    assert "Usage" in run(bin_directory / "exitctl", "--help", cwd=pathlib.Path("/"))


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """Whatever is built, it is of the same C: what the first has compiled the others find. Returns where that lies."""
    place, kept = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("compiled")
    for name in ("cc", "gcc", "musl-gcc", pathlib.Path(sysconfig.get_config_var("CC").split()[0]).name):
        if real := shutil.which(name):
            (place / name).write_text(COMPILES_ONCE.replace("{real}", real).replace("{kept}", str(kept)))
            (place / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{place}:{os.environ['PATH']}")
        yield kept


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    tree = copied(tmp_path_factory.mktemp("sdist") / "tree")
    run(sys.executable, "setup.py", "--quiet", "sdist", cwd=tree)
    (archive,) = (tree / "dist").glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: pathlib.Path, compiled_once: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    out = tmp_path_factory.mktemp("wheel")
    flags = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *flags, "--wheel-dir", out, sdist, cwd=out)
    (wheel,) = out.glob("*.whl")
    return wheel


def other_pythons() -> Iterator[str]:
    """Other interpreters of this machine that exitd promises to run on, one of each version."""
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    for version in ("3.11", "3.12", "3.13", "3.14"):
        # glob.glob passes over directories that this user may not read.
        candidates = [*glob.glob(f"{pyenv}/versions/{version}.*/bin/python3"), shutil.which(f"python{version}")]
        if version != f"{sys.version_info.major}.{sys.version_info.minor}":
            yield from filter(None, candidates[:1])


@pytest.mark.slow_build
def test_the_sdist_holds_the_sources_and_nothing_built(sdist: pathlib.Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"shim/core/core.h", "shim/core/main.c", "protos/exitd/v1/exitd.proto", "LICENSE", "setup.py"} <= names
    assert not [name for name in names if name.endswith((".so", ".o", ".pyc", "_pb2.py"))]


@pytest.mark.slow_build
def test_the_wheel_is_one_for_all_supported_pythons(wheel: pathlib.Path) -> None:
    assert "-cp311-abi3-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "shim/_native.abi3.so" in names
    assert "protos/exitd/v1/exitd_pb2.py" in names
    assert "supervisor/compare/html/page.html" in names


@pytest.mark.slow_build
def test_the_wheel_gets_a_tag_that_pypi_takes(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """As `make wheels` does it."""
    (tmp_path / "empty").mkdir()
    assert re.search(r"-cp311-abi3-manylinux[\w.]+\.whl$", wheels.repaired(wheel, tmp_path / "empty").name)
    with pytest.raises(wheels.NotForPyPI, match="no platform of manylinux"):
        wheels.check(wheel)


@pytest.mark.slow_build
def test_a_wheel_made_from_the_sdist_installs_completely(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    python = environment(tmp_path / "env")
    pip_into(python, wheel)
    assert_complete(python, tmp_path / "env")


@pytest.mark.slow_build
@pytest.mark.usefixtures("compiled_once")
def test_a_source_tree_installs_completely(tmp_path: pathlib.Path) -> None:
    python = environment(tmp_path / "env")
    pip_into(python, copied(tmp_path / "tree"))
    assert_complete(python, tmp_path / "env")


@pytest.mark.slow_build
@pytest.mark.usefixtures("compiled_once")
def test_an_editable_tree_installs_completely(tmp_path: pathlib.Path) -> None:
    python = environment(tmp_path / "env")
    tree = copied(tmp_path / "tree")
    pip_into(python, "--editable", tree)
    assert_complete(python, tree)


if others := list(other_pythons()):

    @pytest.mark.slow_build
    @pytest.mark.parametrize("interpreter", others)
    def test_the_wheel_runs_on_another_python(wheel: pathlib.Path, tmp_path: pathlib.Path, interpreter: str) -> None:
        run(interpreter, "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path)
        python = tmp_path / "env" / "bin" / "python"
        flags = ("--quiet", "--no-compile", "--no-warn-conflicts", "--disable-pip-version-check")
        run(sys.executable, "-m", "pip", "--python", python, "install", *flags, wheel, cwd=tmp_path)
        assert_complete(python, tmp_path / "env")
        run(python, "-c", "import supervisor.system.inotify", cwd=tmp_path)


PYTHON = pathlib.Path("/usr/bin/python3.11")  # bookworm's, to which its package's environment leads

if shutil.which("dpkg-deb") and PYTHON.exists():

    @pytest.mark.slow_build
    @pytest.mark.usefixtures("compiled_once")
    def test_a_package_has_all_that_exitd_needs(tmp_path: pathlib.Path) -> None:
        (made,) = deb.build(["bookworm"], [1], tmp_path / "out", ("-Znone",))
        root = tmp_path / "root"
        for word, place in (("--extract", root), ("--control", tmp_path / "control")):
            subprocess.run(["dpkg-deb", word, made, place], check=True, timeout=120)
        home = root / "opt/exitd"
        for name in (*COMMANDS, *PROGRAMS):
            assert (home / "bin" / name).stat().st_mode & 0o111
        assert {path.name for path in (home / "bin").iterdir()} == {*COMMANDS, *PROGRAMS, "python", "python3"}
        assert (home / "bin/exitd").read_text().startswith("#!/opt/exitd/bin/python\n")
        for link in deb.LINKS:
            assert (root / link).readlink().is_relative_to("/opt/exitd/bin")
        every = (
            "import supervisor.daemon, supervisor.cli.__main__, supervisor.api.overgrpc, supervisor.system.inotify, sys"
        )
        done = subprocess.run(
            [home / "bin/python", "-B", "-c", f"{every}; print(supervisor.__file__, sys.prefix)"],
            cwd="/",  # where no other exitd can be imported from
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done
        assert done.stdout.split() == [f"{home}/lib/python3.11/site-packages/supervisor/__init__.py", str(home)]
        units = root / deb.UNITS
        assert {p.name for p in (ROOT / "systemd").glob("exitd*.s*")} <= {p.name for p in units.iterdir()}
        assert (units / "exitd-.scope.d/exitd.conf").exists() and (units / "containerd.service.d/exitd.conf").exists()
        assert not (units / "exitd.service.d").exists()  # bookworm's systemd does not know notify-reload
        sums = (tmp_path / "control/md5sums").read_text().splitlines()
        subprocess.run(["md5sum", "--quiet", "--check", tmp_path / "control/md5sums"], cwd=root, check=True, timeout=60)
        assert len(sums) == sum(path.is_file() and not path.is_symlink() for path in root.rglob("*"))


def test_the_build_writes_stubs_that_every_allowed_protobuf_loads() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "grpcio-tools==1.80.0" in project["build-system"]["requires"]
    assert "protobuf>=6.31.1,<8" in project["project"]["dependencies"]


def test_every_python_that_a_package_is_made_for_has_its_classifier() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = {each.rpartition(" ")[2] for each in classifiers if each.startswith("Programming Language :: Python :: 3.")}
    assert named >= {suite.python for suite in deb.SUITES.values()}


def test_no_library_that_draws_is_installed_with_exitd_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [each for each in project["dependencies"] if each.startswith("matplotlib")]
    assert [each.partition(">")[0] for each in project["optional-dependencies"]["compare"]] == ["matplotlib"]


def test_no_built_file_is_committed() -> None:
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, timeout=30)
    # Outside a clone (an unpacked sdist) git lists nothing.
    built = [name for name in listed.stdout.splitlines() if name.endswith((".so", ".o", ".pyc", "_pb2.py", "_pb2.pyi"))]
    assert built == []

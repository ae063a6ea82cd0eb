"""The units beside those that tests/test_packaging.py looks into, and all of them as systemd reads them."""

import configparser
import pathlib
import re
import shutil
import subprocess

import pytest

from supervisor.config import file as configfile
from supervisor.engine.nodeshutdown import KILL_SHARE
from tests.systemdunits import exposure, verified
from tests.test_packaging import ROOT, unit

UNITS = ROOT / "systemd"
WATCH = UNITS / "watch.toml"
KINDS = (".service", ".socket", ".slice")


def test_the_socket_unit_hands_over_the_socket_the_daemon_would_bind_itself() -> None:
    socket = unit("exitd.socket")
    assert socket["ListenStream"] == ["/run/exitd/exitd.ttrpc"]
    assert socket["FileDescriptorName"] == ["ttrpc"]
    assert socket["SocketMode"] == ["0600"]  # the daemon opens it to the group, where there is one
    assert "Service" not in socket  # it is exitd.service by its name


def test_the_daemon_writes_no_core_for_it_holds_every_containers_environment() -> None:
    assert unit("exitd.service")["LimitCORE"] == ["0:infinity"]  # hard: what others' shims pass on to containers


def test_daemon_and_keeper_are_started_again_however_often_they_end() -> None:
    for name in ("exitd.service", "exitd-keeper.service", "exitd-watch.service"):
        assert (unit(name)["Restart"], unit(name)["StartLimitIntervalSec"]) == (["always"], ["0"])


def test_a_daemon_that_stands_still_is_ended_long_before_systemd_would_give_up_on_it() -> None:
    daemon = unit("exitd.service")
    assert seconds(daemon["WatchdogSec"]) + seconds(daemon["TimeoutAbortSec"]) <= 60


def test_containers_are_stopped_at_a_shutdown_and_at_no_other_time_and_before_exitd() -> None:
    last = unit("exitd-containers.service")
    (stop,) = last["ExecStop"]
    assert stop == "/opt/exitd/bin/exitctl node-shutdown --if-stopping --time 30"
    assert seconds(last["TimeoutStopSec"]) > 30  # what is over the time is reported, and not cut off
    assert "ExecStart" not in last and last["RemainAfterExit"] == ["yes"]
    assert {"exitd.service", "exitd-keeper.service", "containerd.service", "network.target", "local-fs.target"} <= set(
        last["After"][0].split()
    )
    assert last["Before"] == ["docker.service kubelet.service"]  # these go first


def test_the_slice_of_the_containers_is_stopped_before_exitd_and_their_scopes_after_exitd_has_stopped_them() -> None:
    assert set(unit("exitd.slice")["After"][0].split()) == {"exitd.service", "exitd-keeper.service"}
    scopes = configparser.ConfigParser(interpolation=None)
    scopes.read(UNITS / "exitd-.scope.d/exitd.conf")
    assert scopes["Unit"]["Before"] == "exitd-containers.service"
    # An init that ignores SIGTERM and was not stopped by exitd does not hold the shutdown up for systemd's 90 s.
    assert seconds([scopes["Scope"]["TimeoutStopSec"]]) <= 30 * KILL_SHARE * 2


def test_the_unit_that_only_watches_never_runs_beside_the_daemon_and_is_enabled_by_nobody() -> None:
    watch, daemon = unit("exitd-watch.service"), unit("exitd.service")
    assert watch["Conflicts"] == ["exitd.service exitd.socket"]
    assert {"exitd.service", "exitd.socket"} <= set(watch["After"][0].split())
    for key in ("StateDirectory", "RuntimeDirectory", "RuntimeDirectoryPreserve", "WatchdogSec", "LimitNOFILE"):
        assert watch[key] == daemon[key]  # one ledger
    for script in ("postinst", "prerm", "postrm"):
        units = next(line for line in (ROOT / "debian" / script).read_text().splitlines() if "exitd.socket" in line)
        assert ("exitd-watch.service" in units) is (script != "postinst"), script  # stopped and purged, not enabled
    _, config = watch["ExecStart"][0].split(" --config ")
    assert config == "${EXITD_WATCH_CONFIG}"
    assert f"EXITD_WATCH_CONFIG=/opt/exitd/share/exitd/systemd/{WATCH.name}" in watch["Environment"]
    values = configfile.parse(WATCH.read_bytes(), WATCH.name)
    assert (values[("watch_node",)].value, values[("metrics", "listen")].value) == (True, "127.0.0.1:9476")


@pytest.mark.parametrize("name", ["exitd.service", "exitd-watch.service", "exitd-containers.service"])
def test_a_unit_says_what_it_leaves_out_and_why(name: str) -> None:
    """Every directive that systemd-analyze security would count."""
    text = (UNITS / name).read_text()
    assert [each for each in SANDBOXING if f"{each}=" not in text] == []


SANDBOXING = (
    *("ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateNetwork", "PrivateUsers", "ProtectClock"),
    *("ProtectHostname", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups"),
    *("ProtectProc", "ProcSubset", "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime"),
    *("RestrictSUIDSGID", "LockPersonality", "MemoryDenyWriteExecute", "SystemCallFilter", "SystemCallArchitectures"),
    *("NoNewPrivileges", "CapabilityBoundingSet", "AmbientCapabilities", "IPAddressDeny", "DeviceAllow", "UMask"),
    *("KeyringMode", "RemoveIPC", "Delegate", "SupplementaryGroups", "RootDirectory", "User"),
)


def seconds(values: list[str]) -> float:
    """Of a time span in one unit, as these files have it."""
    (value,) = values
    number, word = re.fullmatch(r"(\d+)(s|min|ms)?", value).groups()  # type: ignore[union-attr]
    return int(number) * {"ms": 0.001, "s": 1, None: 1, "min": 60}[word]


if shutil.which("systemd-analyze"):

    def test_systemd_accepts_the_units(tmp_path: pathlib.Path) -> None:
        assert verified(tmp_path, copied(tmp_path)) == (0, [])

    def test_a_mistake_in_a_unit_is_found(tmp_path: pathlib.Path) -> None:
        files = copied(tmp_path)
        with (tmp_path / "exitd.slice").open("a") as written:
            written.write("Befor=exitd-containers.service\n")
        assert "Befor" in "\n".join(verified(tmp_path, files)[1])

    def test_no_unit_is_more_exposed_than_containerds(tmp_path: pathlib.Path) -> None:
        files = copied(tmp_path)
        containerd = tmp_path / "containerd.service"
        containerd.write_text(CONTAINERD)
        bound = exposure(tmp_path, containerd)
        scores = {file.name: exposure(tmp_path, file) for file in files if file.suffix == ".service"}
        assert len(scores) == 4 and {name for name, score in scores.items() if score > bound} == set()
        assert scores["exitd-containers.service"] < 2.5  # systemd's own word for that: OK
        assert scores["exitd-watch.service"] < 5.5  # it only watches; MEDIUM

    def test_systemd_reads_the_users_and_the_directories(tmp_path: pathlib.Path) -> None:
        (tmp_path / "etc").mkdir()
        for program, kind in (("systemd-sysusers", "sysusers.d"), ("systemd-tmpfiles", "tmpfiles.d")):
            if shutil.which(program):
                words = [program, f"--root={tmp_path}", *(["--create"] if "tmp" in program else [])]
                done = subprocess.run(
                    [*words, UNITS / kind / "exitd.conf"], capture_output=True, text=True, timeout=60, check=False
                )
                assert (done.returncode, done.stderr) == (0, "") or "Creating group" in done.stderr, done


def copied(directory: pathlib.Path) -> list[pathlib.Path]:
    """The units. The programs must exist for the check, so it is made with one that does."""
    files = []
    for path in UNITS.iterdir():
        if path.suffix in KINDS:
            file = directory / path.name
            file.write_text(re.sub(r"/opt/exitd/bin/[\w-]+", "/bin/true", path.read_text()))
            files.append(file)
    assert len(files) == 6
    return files


# What containerd's own unit sets of all that is counted: nothing.
CONTAINERD = """[Unit]
Description=containerd container runtime
[Service]
ExecStart=/bin/true
Type=notify
Delegate=yes
KillMode=process
Restart=always
LimitNPROC=infinity
LimitCORE=infinity
LimitNOFILE=infinity
TasksMax=infinity
OOMScoreAdjust=-999
"""

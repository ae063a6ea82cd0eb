"""exitd-client as pip installs it."""

import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "client"
LOOK = """
import sys
sys.path.insert(0, sys.argv[1])
import exitd_client
assert exitd_client.__file__.startswith(sys.argv[1]), exitd_client.__file__
exitd_client.Client("/run/exitd/none.sock").close()
print(sorted({name.partition(".")[0] for name in sys.modules} & {"supervisor", "shim", "protos"}))
"""


@pytest.mark.slow_build
def test_the_wheel_is_typed_and_whole_and_needs_nothing_of_exitd(tmp_path: pathlib.Path) -> None:
    copy = shutil.copytree(
        CLIENT, tmp_path / "client", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    )
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", tmp_path, copy], check=True, timeout=240)
    (wheel,) = tmp_path.glob("exitd_client-*.whl")
    modules = {f"exitd_client/{path.name}" for path in (CLIENT / "exitd_client").iterdir() if path.is_file()}
    with zipfile.ZipFile(wheel) as opened:
        assert {name for name in opened.namelist() if ".dist-info/" not in name} == modules
        (metadata,) = (name for name in opened.namelist() if name.endswith("/METADATA"))
        needs = [line for line in opened.read(metadata).decode().splitlines() if line.startswith("Requires-Dist")]
    assert {"exitd_client/py.typed", "exitd_client/api.binpb"} <= modules
    assert len(needs) == 3 and not any("Requires-Dist: exitd" in line for line in needs)
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOOK, wheel], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")

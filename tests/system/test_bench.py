"""The benchmark works. What it measures is for people to judge, never for a test."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIMIT_SECONDS = 60


def test_a_quick_bench_prints_its_row_and_writes_its_samples(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--only", "shim-memory", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("shim-memory") and " exitd " in line]
    assert " kB " in row
    results = json.loads((tmp_path / "results.json").read_text())
    (figure,) = [figure for figure in results["figures"] if figure["who"] == "exitd"]
    assert len(figure["values"]) == 3
    assert row in done.stdout and "exitd" in (tmp_path / "figures.md").read_text()
    assert results["machine"]["state directory on"] in done.stdout

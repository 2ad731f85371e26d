"""The doctor as a shell sees it, on a machine whose GPUs, if any, are hidden."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import ENVIRONMENT


@pytest.mark.parametrize(
    ("matrix", "code", "cell"),
    [
        ("default", 0, "  tp4-graph_on  can run"),
        ("gpu", 5, "  tp4-graph_on  cannot run: needs 4 cuda devices, found 0: "),
    ],
)
def test_the_doctor_tells_what_this_machine_can_run(matrix: str, code: int, cell: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "graphcheck", "doctor", matrix],
        cwd=tmp_path,
        env=ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["python", "torch"]
    assert "GPUs         none: " in done.stdout
    assert any(line.startswith(cell) for line in lines)
    assert lines[-1].startswith(f"exit {code}: ")
    assert list(tmp_path.iterdir()) == [], "nothing has run"

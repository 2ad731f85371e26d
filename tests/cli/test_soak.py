"""Hundreds of runs under load, undisturbed and with processes killed at random: no false alarm, nothing left behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import ENVIRONMENT, ROOT


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("mode", [["clean"], ["kill", "-k", "tp=2"]], ids=["clean", "kill"])
def test_two_hundred_runs_under_load(mode: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "soak.py"), *mode, "--runs", "200", "--jobs", "3"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    figures = json.loads(done.stdout)
    assert (done.returncode, figures["wrong"], figures["shared_memory_left"]) == (0, [], []), figures
    assert figures["goldens_untouched"]

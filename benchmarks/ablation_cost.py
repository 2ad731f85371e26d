"""Measures what an ablation of n fixes costs against n + 1 whole matrices, in one run of this program.

python benchmarks/ablation_cost.py
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from graphcheck.harness.records.run_folder import Run, load_run


def run_once(*command: str) -> tuple[float, Run]:
    """Wall seconds of one whole command, and its run."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        arguments = [sys.executable, "-m", "graphcheck", *command, "--run-dir", f"{folder}/run"]
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began, load_run(Path(folder) / "run")


def main() -> None:
    """Prints the figures as JSON."""
    before, _ = run_once("run", "matrix")
    ablation_seconds, run = run_once("ablate")
    after, _ = run_once("run", "matrix")
    assert run.info.ablation is not None
    num_fixes = len(run.info.ablation.fixes)
    matrix_seconds = (before + after) / 2
    figures = {
        "num_fixes": num_fixes,
        "attempts": len(run.attempts) + len(run.forced),
        "attempts_of_whole_matrices": (num_fixes + 1) * run.info.ablation.num_selected_cells,
        "ablation_over_whole_matrices": round(ablation_seconds / ((num_fixes + 1) * matrix_seconds), 2),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()

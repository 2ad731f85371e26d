"""Measures what breadcrumbs cost a decode step: the same cells with and without, alternating.

python benchmarks/breadcrumbs.py [--repeats 5] [MATRIX ...options of graphcheck run matrix]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from graphcheck.harness.records.run_folder import load_run


def step_ms(breadcrumbs: str, options: list[str]) -> dict[str, float]:
    """Cell -> median milliseconds of a decode step, over ranks and steps."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "graphcheck", "run", "matrix", *options]
        command += ["--set", f"breadcrumbs={breadcrumbs}", "--run-dir", f"{folder}/run"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        run = load_run(Path(folder) / "run")
        return {
            attempt.started.key: 1e3
            * statistics.median(
                step.seconds for step in run.steps(attempt.started.key) if step.phase == "decode" and step.seconds
            )
            for attempt in run.attempts
        }


def main() -> None:
    """Prints, for each cell, the median step with breadcrumbs over the one without, as JSON."""
    parser = argparse.ArgumentParser(description="Measure what breadcrumbs cost.")
    parser.add_argument("--repeats", type=int, default=5)
    arguments, options = parser.parse_known_args()
    taken: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(arguments.repeats):
        for breadcrumbs in ("off", "on"):
            for cell, milliseconds in step_ms(breadcrumbs, options).items():
                taken[cell][breadcrumbs].append(milliseconds)
    figures = {
        cell: {
            "step_ms_off": round(statistics.median(by["off"]), 3),
            "step_ms_on": round(statistics.median(by["on"]), 3),
            "on_over_off": round(statistics.median(by["on"]) / statistics.median(by["off"]), 3),
        }
        for cell, by in taken.items()
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

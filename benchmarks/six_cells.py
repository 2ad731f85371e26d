"""Measures the default matrix: wall time cold and warm, its parts, replay over eager, peak memory, supervision.

    python benchmarks/six_cells.py [--repeats 5]

Every figure of a comparison comes from one run of this program, alternating between its two sides.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from graphcheck.harness.records.run_folder import Run, load_run

PARTS = ("start", "load", "capture", "prefill", "decode")


def run_once(*options: str) -> tuple[float, Run]:
    """Wall seconds of one whole command, and its run."""
    folder = tempfile.mkdtemp(prefix="six-cells-")
    began = time.perf_counter()
    command = [sys.executable, "-m", "graphcheck", "run", "matrix", "--run-dir", f"{folder}/run", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began, load_run(Path(folder) / "run")


def parts(run: Run) -> dict[str, float]:
    """Seconds in each part, summed over cells, on the slowest rank of each."""
    total: dict[str, float] = defaultdict(float)
    for attempt in run.attempts:
        assert attempt.finished is not None
        evidence = attempt.finished.facts.evidence.values()
        for part in PARTS:
            total[part] += max(one.seconds.get(part, 0.0) for one in evidence)
    return dict(total)


def decode_step_ms(run: Run) -> dict[str, float]:
    """Cell -> median milliseconds of a decode step, all ranks."""
    return {
        attempt.started.key: 1e3
        * statistics.median(
            step.seconds for step in run.steps(attempt.started.key) if step.phase == "decode" and step.seconds
        )
        for attempt in run.attempts
    }


def peak_memory_mib(run: Run) -> float:
    """Largest resident memory of any rank."""
    peaks = [
        evidence.peak_memory_bytes or 0
        for attempt in run.attempts
        if attempt.finished is not None
        for evidence in attempt.finished.facts.evidence.values()
    ]
    return max(peaks) / 2**20


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description="Measure the default matrix.")
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    cold, _ = run_once()
    runs = [run_once() for _ in range(repeats)]
    ratios: dict[int, list[float]] = defaultdict(list)
    for _, run in runs:
        step_ms = decode_step_ms(run)
        for tp in (1, 2, 4):
            ratios[tp].append(step_ms[f"tp{tp}-graph_on"] / step_ms[f"tp{tp}-graph_off"])
    spent = [parts(run) for _, run in runs]
    figures = {
        "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
        "cold_seconds": round(cold, 2),
        "warm_seconds_median": round(statistics.median(wall for wall, _ in runs), 2),
        "part_seconds_median": {part: round(statistics.median(one[part] for one in spent), 2) for part in PARTS},
        "not_decode_seconds_median": round(
            statistics.median(wall - parts(run)["decode"] - parts(run)["prefill"] for wall, run in runs), 2
        ),
        "tape_replay_over_eager": {tp: round(statistics.median(values), 3) for tp, values in ratios.items()},
        "peak_rank_memory_mib": round(max(peak_memory_mib(run) for _, run in runs)),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()

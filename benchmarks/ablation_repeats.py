"""Runs one ablation many times in a row and says whether every run gave the same table.

python benchmarks/ablation_repeats.py --runs 20 [MATRIX ...options of graphcheck ablate]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from graphcheck.harness.judging.findings import find
from graphcheck.harness.records.run_folder import load_run


def table(run_dir: Path) -> dict[str, dict[str, object]]:
    """Fix -> finding, and the verdicts that came in each cell."""
    run = load_run(run_dir)
    return {
        finding.fix: {
            "finding": finding.finding.value,
            "cells": {effect.cell: sorted(set(effect.verdicts)) for effect in finding.effects},
        }
        for finding in find(run.info, run.attempts)
    }


def main() -> int:
    """Prints the tables that came and how often, as JSON; exit 1 if there is more than one, or one is not proven."""
    parser = argparse.ArgumentParser(description="Run one ablation many times.")
    parser.add_argument("--runs", type=int, default=20)
    arguments, options = parser.parse_known_args()
    tables: Counter[str] = Counter()
    codes: Counter[int] = Counter()
    for number in range(arguments.runs):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "graphcheck", "ablate", *options, "--run-dir", f"{folder}/run"]
            codes[subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode] += 1
            tables[json.dumps(table(Path(folder) / "run"))] += 1
        print(
            f"run {number + 1} of {arguments.runs}: {len(tables)} different tables so far", file=sys.stderr, flush=True
        )
    came = [{"times": times, "table": json.loads(text)} for text, times in tables.most_common()]
    print(json.dumps({"runs": arguments.runs, "exit_codes": dict(codes), "tables": came}, indent=2))
    return 0 if len(came) == 1 and set(codes) == {0} else 1


if __name__ == "__main__":
    sys.exit(main())

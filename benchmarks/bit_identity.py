"""Says whether the logits of a recorded run are bit-identical over all its cells and ranks.

graphcheck run matrix NAME --set logits=digest --run-dir DIR && python benchmarks/bit_identity.py DIR
"""

import sys
from collections import defaultdict
from pathlib import Path

from graphcheck.harness.records.run_folder import Run, load_run


def distinct_logits(run: Run) -> dict[tuple[str, int, int], set[str]]:
    """(prompt, pass, output index) -> the sha256 of its logits in every cell and on every rank."""
    found: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for attempt in run.attempts:
        for step in run.steps(attempt.started.key):
            for request, index, sha in zip(step.requests, step.index, step.logits_sha or (), strict=True):
                found[request, step.run, index].add(sha)
    return found


def main() -> int:
    """Prints one line; exit 1 if any row of logits has two versions, 5 if none was recorded."""
    run = load_run(Path(sys.argv[1]))
    logits = distinct_logits(run)
    if not logits:
        print("no logits were recorded; run the matrix with --set logits=digest")
        return 5
    split = {row for row, shas in logits.items() if len(shas) > 1}
    ranks = sum(attempt.finished.facts.num_ranks for attempt in run.attempts if attempt.finished)
    same = f"{len(logits) - len(split)}/{len(logits)} rows of logits"
    print(f"{same} bit-identical over {len(run.attempts)} cells, {ranks} ranks")
    return 1 if split else 0


if __name__ == "__main__":
    sys.exit(main())

"""Says whether the logits of a recorded run are bit-identical over all its cells and ranks.

graphcheck run matrix NAME --set logits=digest --run-dir DIR && python benchmarks/bit_identity.py DIR
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.report.words import counted
from graphcheck.schema.errors import GraphcheckError
from graphcheck.schema.exit_codes import ExitCode


def logits_of(run: Run) -> dict[tuple[str, int, int], dict[tuple[str, int], str]]:
    """(prompt, pass, output index) -> (cell, rank) -> the sha256 of its logits there; empty if no step tells."""
    found: dict[tuple[str, int, int], dict[tuple[str, int], str]] = defaultdict(dict)
    for attempt in run.attempts:
        key = attempt.started.key
        for step in run.steps(key):
            if step.logits_sha is not None:
                for request, index, sha in zip(step.requests, step.index, step.logits_sha, strict=True):
                    found[request, step.run, index][key, step.rank] = sha
    return found


def main() -> int:
    """Prints one line; exit 1 if a row of logits has two versions, 5 if none was recorded, 2 if there is no run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="DIR", help="the folder of a run")
    try:
        run = load_run(parser.parse_args().run)
        logits = logits_of(run)
    except GraphcheckError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return error.exit_code
    if not logits:
        print("no logits were recorded; run the matrix with --set logits=digest")
        return ExitCode.VACUOUS
    num_same = sum(len(set(by_rank.values())) == 1 for by_rank in logits.values())
    ranks = {rank for by_rank in logits.values() for rank in by_rank}
    where = f"{counted(len({cell for cell, _ in ranks}), 'cell')}, {counted(len(ranks), 'rank')}"
    print(f"{num_same}/{len(logits)} rows of logits bit-identical over {where}")
    return ExitCode.PASS if num_same == len(logits) else ExitCode.TOKENS


if __name__ == "__main__":
    sys.exit(main())

"""Owns a run as a table, one row a cell. Formats nothing."""

from typing import Any

import pandas as pd

from graphcheck.harness.judging.summary import num_exact
from graphcheck.harness.records.run_folder import Run
from graphcheck.report.words import num_near_tied
from graphcheck.schema.run import AttemptFinished, RecordedAttempt

_COUNTS = dict.fromkeys(("exact", "near_ties", "prompts", "replays", "eligible"), "Int64")


def cells_frame(run: Run) -> pd.DataFrame:
    """One row for each attempt that was started, in order.

    Columns: `key`; one a varying axis; `verdict` (missing if the run ended first), `green`, `declared_eager`, `reason`;
    the counts `exact`, `near_ties`, `prompts`, `replays` (of the rank with fewest) and `eligible` (lane-tokens),
    missing where unknown; `seconds` as `wall_seconds` gives them.
    """
    columns = ["key", *axis_names(run), "verdict", "green", "declared_eager", "reason", *_COUNTS, "seconds"]
    rows = [_cell(run, attempt) for attempt in run.attempts]
    # As objects, so that a number stays whole in a column that some cells leave empty.
    return pd.DataFrame(rows, columns=columns, dtype=object).astype({**_COUNTS, "seconds": "Float64"})


def axis_names(run: Run) -> list[str]:
    """The axes that this run varies, in the matrix's order; a cell need not have all of them."""
    return list(dict.fromkeys(axis for attempt in run.attempts for axis in attempt.started.attempt.cell.axes))


def least_replays(finished: AttemptFinished) -> int | None:
    """Replays of the rank with fewest; None if any rank could not tell."""
    replays = [evidence.replays for evidence in finished.facts.evidence.values()]
    known = [count for count in replays if count is not None]
    return min(known) if known and len(known) == finished.facts.num_ranks else None


def wall_seconds(run: Run, attempt: RecordedAttempt) -> float | None:
    """Wall time of an attempt, its forced pass included, as whoever followed the run saw it; None if nothing ran."""
    forced = run.forced.get(attempt.started.key)
    passes = [attempt.finished, forced.finished if forced is not None else None]
    seconds = [one.facts.seconds["wall"] for one in passes if one is not None and "wall" in one.facts.seconds]
    return sum(seconds) if seconds else None


def _cell(run: Run, attempt: RecordedAttempt) -> dict[str, Any]:
    started, finished = attempt.started, attempt.finished
    row: dict[str, Any] = {"key": started.key, **started.attempt.cell.axes}
    row["prompts"] = len(started.workload.requests) if started.workload is not None else None
    if finished is None:
        return row
    return row | {
        "verdict": finished.verdict.value,
        "green": finished.verdict.is_green,
        "declared_eager": finished.declared_eager,
        "reason": finished.reason,
        "exact": num_exact(finished),
        "near_ties": num_near_tied(finished),
        "replays": least_replays(finished),
        "eligible": finished.eligible_lane_tokens,
        "seconds": wall_seconds(run, attempt),
    }

"""Owns a run as a table, one row a cell. Formats nothing."""

from typing import Any

import pandas as pd

from graphcheck.harness.records.run_folder import RecordedAttempt, Run
from graphcheck.harness.records.summary import num_exact
from graphcheck.schema.run import AttemptFinished

_COUNTS = dict.fromkeys(("exact", "prompts", "replays", "eligible"), "Int64")


def cells_frame(run: Run) -> pd.DataFrame:
    """One row for each attempt that was started, in order.

    Columns: `key`; one a varying axis; `verdict` (missing if the run ended first), `green`, `declared_eager`, `reason`;
    the counts `exact`, `prompts`, `replays` (of the rank with fewest) and `eligible` (lane-tokens), missing where
    unknown; `seconds` of wall time.
    """
    columns = ["key", *axis_names(run), "verdict", "green", "declared_eager", "reason", *_COUNTS, "seconds"]
    rows = [_cell(attempt) for attempt in run.attempts]
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


def _cell(attempt: RecordedAttempt) -> dict[str, Any]:
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
        "replays": least_replays(finished),
        "eligible": finished.eligible_lane_tokens,
        "seconds": finished.facts.seconds.get("wall"),
    }

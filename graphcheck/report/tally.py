"""Owns the evidence line of a pull request: what could have gone wrong, each counted, zeros included."""

from collections.abc import Sequence

from graphcheck.harness.judging.summary import summarize
from graphcheck.schema.run import AttemptFinished, RecordedAttempt, RunInfo
from graphcheck.schema.verdicts import Outcome, Verdict

_CUT_SHORT = (Verdict.HANG, Verdict.TIMEOUT, Verdict.CRASH, Verdict.OOM)
"""An attempt that ended so cut its answers short: their lengths say nothing."""


def evidence_line(info: RunInfo, attempts: Sequence[RecordedAttempt]) -> str:
    """`valid cells 6/6; exact 72/72; request errors 0, ...; near ties 0`.

    A cell is valid if its verdict is green. Hangs and crashes are added where there were any.
    """
    summary = summarize(info, attempts)
    finished = [attempt.finished for attempt in attempts if attempt.finished is not None]
    verdicts = [one.verdict for one in finished]
    outcomes = [prompt.outcome for one in finished for prompt in one.prompts]
    lengths = [p.outcome for one in finished if one.verdict not in _CUT_SHORT for p in one.prompts]
    wrong = {
        "request errors": sum(map(_request_errors, finished)),
        "time-outs": verdicts.count(Verdict.TIMEOUT),
        "OOMs": verdicts.count(Verdict.OOM),
        "collapse": outcomes.count(Outcome.COLLAPSE),
        "loops": sum(prompt.loop is not None for one in finished for prompt in one.prompts),
        "abnormal lengths": lengths.count(Outcome.LENGTH),
    }
    worse = {"hangs": verdicts.count(Verdict.HANG), "crashes": verdicts.count(Verdict.CRASH)}
    parts = [
        f"valid cells {summary.num_green}/{summary.num_cells}",
        f"exact {summary.num_exact}/{summary.num_prompts}",
        _counts(wrong),
        f"near ties {summary.num_near_ties}",
        _counts({name: count for name, count in worse.items() if count}),
    ]
    return "; ".join(filter(None, parts))


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _request_errors(finished: AttemptFinished) -> int:
    """Prompts that an engine refused or failed, however many of its ranks said so."""
    return len({error.request for error in finished.facts.errors if error.kind == "request"})

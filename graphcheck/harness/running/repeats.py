"""Owns the verdict of a cell that ran several times: noise within the cell first, then what its runs agree on."""

from collections import Counter
from collections.abc import Sequence

from graphcheck.harness.judging.rates import describe
from graphcheck.schema.run import AttemptFinished
from graphcheck.schema.verdicts import Verdict

_ORDER = tuple(Verdict)
_JUDGED_BY_TOKENS = _ORDER[_ORDER.index(Verdict.TOKENS) :]
"""Verdicts of runs that came to their end, so that their tokens can be compared."""


def settle(runs: Sequence[AttemptFinished]) -> AttemptFinished:
    """The run that speaks for its cell, with the cell's verdict; all `runs` are of one cell, in order.

    The gravest run speaks where one hung, crashed or did not run at all. Else, where tokens differ from run to run, the
    cell is FLAKY, and the first run speaks that is apart from the others: a red one from green ones, or one whose
    tokens are not the commonest. A cell that is wrong in the same way each time is no more than wrong.
    """
    gravest = min(runs, key=lambda run: _ORDER.index(run.verdict))
    if len(runs) == 1:
        return gravest
    if gravest.verdict not in _JUDGED_BY_TOKENS:
        return gravest.model_copy(update={"reason": _with_rate(gravest, runs)})
    if len({run.answers_sha for run in runs}) == 1:
        return gravest
    red = [run for run in runs if not run.verdict.is_green]
    commonest, _ = Counter(run.answers_sha for run in runs).most_common(1)[0]
    is_split = 0 < len(red) < len(runs)
    apart = red if is_split else [run for run in runs if run.answers_sha != commonest]
    what = "red" if is_split else "apart from the commonest"
    reason = f"tokens differ from run to run: {describe(len(apart), len(runs))} {what}"
    return apart[0].model_copy(
        update={"verdict": Verdict.FLAKY, "reason": "; ".join(filter(None, (reason, apart[0].reason)))}
    )


def _with_rate(gravest: AttemptFinished, runs: Sequence[AttemptFinished]) -> str:
    alike = sum(run.verdict is gravest.verdict for run in runs)
    return gravest.reason if alike == len(runs) else f"in {describe(alike, len(runs))} of its runs: {gravest.reason}"

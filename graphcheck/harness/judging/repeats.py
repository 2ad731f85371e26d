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

    A skipped run takes nothing from what the others showed, but a cell is green only if all of them ran: one that hung
    may have kept the GPU that the next one needed.
    """
    ran = [run for run in runs if run.verdict is not Verdict.SKIPPED]
    skipped = [run for run in runs if run.verdict is Verdict.SKIPPED]
    speaks = _agreed(ran) if ran else None
    if speaks is None or (skipped and speaks.verdict.is_green):
        return skipped[0]
    if not skipped:
        return speaks
    reason = f"{speaks.reason}; {len(skipped)} of its {len(runs)} runs were skipped"
    return speaks.model_copy(update={"reason": reason})


def _agreed(runs: Sequence[AttemptFinished]) -> AttemptFinished:
    """What `runs`, none of them skipped, add up to.

    The gravest speaks where one hung, crashed or could not start. Else, where tokens differ from run to run, the cell
    is FLAKY, and the first run speaks that is apart from the others: a red one from green ones, or one whose tokens
    are not the commonest. A cell that is wrong in the same way each time is no more than wrong.
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

"""Owns what the places of wrong tokens have in common, where their counts leave no doubt; else it says nothing."""

from collections.abc import Sequence

from graphcheck.harness.judging.judge import UNJUDGED
from graphcheck.harness.judging.rates import ALPHA, excess
from graphcheck.schema.base import AxisValue
from graphcheck.schema.run import RecordedAttempt, Tally, WrongTokens


def patterns(wrong: WrongTokens) -> list[str]:
    """`only in padded batches (12 of 40 wrong, 0 of 61 in full ones)`, and the like."""
    return [*_padding(wrong), *_lane(wrong), *_length(wrong)]


def first_tp(attempts: Sequence[RecordedAttempt]) -> list[str]:
    """The smallest TP size that is red, where all larger ones are too and all smaller ones are green; one per rest."""
    by_rest: dict[tuple[tuple[str, AxisValue], ...], dict[int, bool]] = {}
    for attempt in attempts:
        axes = dict(attempt.started.attempt.cell.axes)
        tp = axes.pop("tp", None)
        if isinstance(tp, int) and attempt.finished is not None and attempt.finished.verdict not in UNJUDGED:
            by_rest.setdefault(tuple(axes.items()), {})[tp] = attempt.finished.verdict.is_green
    lines = []
    for rest, green in by_rest.items():
        red = [tp for tp in sorted(green) if not green[tp]]
        if len(green) > 2 and 0 < len(red) < len(green) and sorted(green)[-len(red) :] == red:
            where = ", ".join(f"{axis}={value}" for axis, value in rest)
            lines.append(f"first TP size that fails{f' ({where})' if where else ''}: {red[0]}")
    return lines


def _padding(wrong: WrongTokens) -> list[str]:
    if not _only(wrong.padded, wrong.full):
        return []
    return [f"only in padded batches ({_share(wrong.padded)} wrong, {_share(wrong.full)} in full ones)"]


def _lane(wrong: WrongTokens) -> list[str]:
    """One lane alone, or every lane from one on."""
    bad = [lane for lane, tally in wrong.lanes.items() if tally.wrong]
    if not bad:
        return []
    here = _sum([wrong.lanes[lane] for lane in wrong.lanes if lane >= bad[0]])
    below = _sum([wrong.lanes[lane] for lane in wrong.lanes if lane < bad[0]])
    others = _sum([wrong.lanes[lane] for lane in wrong.lanes if lane != bad[0]])
    if len(bad) == 1 and _only(wrong.lanes[bad[0]], others):
        return [f"only in lane {bad[0]} ({_share(wrong.lanes[bad[0]])} wrong, {_share(others)} in the others)"]
    if _only(here, below):
        return [f"first lane that fails: {bad[0]} ({_share(here)} wrong from there on, {_share(below)} below)"]
    return []


def _length(wrong: WrongTokens) -> list[str]:
    """A border: right below it, wrong without exception from there on."""
    if wrong.longer.wrong < wrong.longer.total or not _only(wrong.longer, wrong.shorter):
        return []
    return [f"first length that fails: {wrong.shortest} tokens (right in {wrong.shorter.total} steps below)"]


def _only(here: Tally, elsewhere: Tally) -> bool:
    """Wrong here and never elsewhere, which chance would not bring about."""
    if elsewhere.wrong or not (here.wrong and elsewhere.total):
        return False
    return excess(here.wrong, here.total, elsewhere.wrong, elsewhere.total) < ALPHA


def _sum(tallies: Sequence[Tally]) -> Tally:
    return Tally(wrong=sum(tally.wrong for tally in tallies), total=sum(tally.total for tally in tallies))


def _share(tally: Tally) -> str:
    return f"{tally.wrong} of {tally.total}"

"""Owns the outcome of one prompt: its transcripts against its golden. Knows nothing of verdicts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphcheck.harness.transcript import Transcript, TranscriptKey
from graphcheck.schema.events import ErrorEvent
from graphcheck.schema.golden import GoldenPrompt
from graphcheck.schema.run import PromptResult
from graphcheck.schema.verdicts import Outcome

CORRUPT_SHARE = 0.25
"""From this share of wrong tokens on, a prompt is corrupt rather than drifting."""

FOREVER = 8
"""A token that fills at least this many last places, and does not in the golden, counts as repeated for ever."""

LONGEST_PERIOD = 8
LEAST_PERIODS = 3
"""A tail is a loop if a period of at most LONGEST_PERIOD tokens fills it at least LEAST_PERIODS times."""

_ORDER = tuple(Outcome)


@dataclass(frozen=True)
class _Reading:
    """What one transcript shows: its outcome, and the token at which it first leaves the golden.

    `loop` is the period in tokens of the loop that it ends in, unless the golden ends in the same.
    """

    transcript: Transcript
    outcome: Outcome
    step: int = 0
    detail: str = ""
    loop: int | None = None


def compare(
    golden: GoldenPrompt,
    answers: Sequence[Transcript],
    errors: Iterable[ErrorEvent],
    forced: Mapping[TranscriptKey, Transcript] | None = None,
) -> PromptResult:
    """The first outcome that applies, over every rank of every pass.

    `answers` holds one transcript for each rank of each pass, empty where no token came. With `forced`, the answers of
    the forced pass, a wrong token is judged by that pass, where each step is judged on its own; a free pass alone
    counts every wrong token towards `corrupt`, those that only follow from the first one too.
    """
    forced = forced or {}
    for error in errors:
        if error.request == golden.id:
            detail = f"{error.error}: {error.message}"
            return PromptResult(prompt=golden.id, outcome=Outcome.ERROR, rank=error.rank, detail=detail)
    readings = [_read(golden, answer, forced.get((answer.prompt, answer.run, answer.rank))) for answer in answers]
    broken = next((reading for reading in readings if reading.outcome is Outcome.ERROR), None)
    if broken is not None:
        rank = broken.transcript.rank
        return PromptResult(prompt=golden.id, outcome=Outcome.ERROR, rank=rank, detail=broken.detail)
    silent = _silent_pass(answers)
    if silent is not None:
        return PromptResult(prompt=golden.id, outcome=Outcome.MISSING, detail=f"no tokens{_in_pass(silent)}")
    different = [reading for reading in readings if reading.outcome is not Outcome.EXACT]
    if not different:
        return PromptResult(prompt=golden.id, outcome=Outcome.EXACT)
    return _result(golden, different)


def _read(golden: GoldenPrompt, answer: Transcript, forced: Transcript | None) -> _Reading:
    if answer.broken is not None:
        return _Reading(answer, Outcome.ERROR, detail=answer.broken)
    step = _first_difference(golden.ids, answer)
    if step is None:
        return _Reading(answer, Outcome.EXACT)
    outcome, detail = _classify(golden.ids, answer, forced)
    where = f" on rank {answer.rank}{_in_pass(answer.run)}"
    period = _loop_period(answer.ids)
    if outcome is Outcome.COLLAPSE or period == _loop_period(golden.ids):
        period = None
    if period is not None:
        where += f", ending in a loop of {period}"
    return _Reading(answer, outcome, step, detail + where, period)


def _first_difference(expected: Sequence[int], answer: Transcript) -> int | None:
    """A token whose logits were not finite differs even if its id is right: the argmax of NaN is an accident."""
    for step, token in enumerate(answer.tokens):
        if step >= len(expected) or token.id != expected[step] or not token.finite:
            return step
    return len(answer.tokens) if len(answer.tokens) < len(expected) else None


def _classify(expected: Sequence[int], answer: Transcript, forced: Transcript | None) -> tuple[Outcome, str]:
    """Outcome of an answer that differs; compared are the tokens up to the shorter end."""
    if not all(token.finite for token in answer.tokens):
        return Outcome.COLLAPSE, "logits were not finite"
    if _run_at_end(answer.ids) >= FOREVER > _run_at_end(expected):
        return Outcome.COLLAPSE, f"token {answer.ids[-1]} for ever"
    wrong, total = _wrong(expected, answer)
    if wrong:
        unit = "tokens"
        if forced is not None and _wrong(expected, forced)[0]:
            (wrong, total), unit = _wrong(expected, forced), "forced steps"
        outcome = Outcome.CORRUPT if wrong >= CORRUPT_SHARE * total else Outcome.DRIFT
        return outcome, f"{wrong} of {total} {unit} wrong"
    return Outcome.LENGTH, f"{len(answer.ids)} tokens instead of {len(expected)}"


def _wrong(expected: Sequence[int], answer: Transcript) -> tuple[int, int]:
    """Wrong tokens, and how many could be compared."""
    pairs = list(zip(answer.ids, expected, strict=False))
    return sum(got != right for got, right in pairs), len(pairs)


def _result(golden: GoldenPrompt, different: Sequence[_Reading]) -> PromptResult:
    """The worst reading names the outcome; the earliest difference (pass, token, rank) is the evidence."""
    worst = min(different, key=lambda reading: _ORDER.index(reading.outcome))
    first = min(different, key=lambda reading: (reading.transcript.run, reading.step, reading.transcript.rank))
    step = first.step
    token = first.transcript.tokens[step] if step < len(first.transcript.tokens) else None
    return PromptResult(
        prompt=golden.id,
        outcome=worst.outcome,
        rank=first.transcript.rank,
        step=step,
        expected=golden.ids[step] if step < len(golden.ids) else None,
        got=token.id if token else None,
        margin=_margin(golden, step),
        engine_step=token.engine_step if token else None,
        lane=token.lane if token else None,
        bucket=token.bucket if token else None,
        live=token.live if token else None,
        detail=worst.detail,
        loop=next((reading.loop for reading in different if reading.loop is not None), None),
    )


def _margin(golden: GoldenPrompt, step: int) -> float | None:
    """How far the golden's choice stood above the next best; None if the golden does not say."""
    if step >= len(golden.steps) or len(golden.steps[step].top) < 2:
        return None
    return golden.steps[step].margin


def _silent_pass(answers: Sequence[Transcript]) -> int | None:
    """The first pass in which no rank gave a token; the very first if there is no transcript at all."""
    spoke: dict[int, bool] = {}
    for answer in answers:
        spoke[answer.run] = spoke.get(answer.run, False) or bool(answer.tokens)
    return next((run for run in sorted(spoke) if not spoke[run]), None if spoke else 0)


def _run_at_end(ids: Sequence[int]) -> int:
    """How many last places hold the last token."""
    return next((count for count, token in enumerate(reversed(ids)) if token != ids[-1]), len(ids))


def _loop_period(ids: Sequence[int]) -> int | None:
    """The shortest period that the answer ends in, in tokens; None if it ends in no loop."""
    for period in range(1, LONGEST_PERIOD + 1):
        tail = ids[-period * LEAST_PERIODS :]
        if len(tail) == period * LEAST_PERIODS and tail[:-period] == tail[period:]:
            return period
    return None


def _in_pass(run: int) -> str:
    return f" in pass {run + 1}" if run else ""

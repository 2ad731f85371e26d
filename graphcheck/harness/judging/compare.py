"""Owns the outcome of one prompt: its transcripts against its golden. Knows nothing of verdicts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphcheck.harness.judging.degeneration import Loop, forever, loop_at_end
from graphcheck.harness.judging.near_tie import TieRule, margin_ulp, near_ties
from graphcheck.harness.judging.transcript import Transcript, TranscriptKey
from graphcheck.schema.events import ErrorEvent
from graphcheck.schema.golden import GoldenPrompt
from graphcheck.schema.run import NearTie, PromptResult
from graphcheck.schema.verdicts import Outcome

CORRUPT_SHARE = 0.25
"""From this share of wrong tokens on, a prompt is corrupt rather than drifting."""

_ORDER = tuple(Outcome)


@dataclass(frozen=True)
class Terms:
    """What answers to a prompt are judged by, besides its golden. `page_size` is in tokens; None if there are no pages.

    `stop_ids` are the request's: an answer that the golden's tokens end with one of them ended by a stop.
    """

    ties: TieRule = field(default_factory=TieRule)
    stop_ids: tuple[int, ...] = ()
    page_size: int | None = None


@dataclass(frozen=True)
class _Reading:
    """What one transcript shows: its outcome, and the token at which it first leaves the golden."""

    transcript: Transcript
    outcome: Outcome
    step: int = 0
    detail: str = ""
    loop: Loop | None = None
    near_ties: tuple[NearTie, ...] = ()


def compare(
    golden: GoldenPrompt,
    answers: Sequence[Transcript],
    errors: Iterable[ErrorEvent],
    forced: Mapping[TranscriptKey, Transcript] | None = None,
    terms: Terms = Terms(),
) -> PromptResult:
    """The gravest outcome over every rank of every pass.

    `answers` holds one transcript for each rank of each pass, empty where no token came. With `forced`, the answers of
    the forced pass, a wrong token is judged by that pass, where each step is judged on its own; a free pass alone
    counts every wrong token towards `corrupt`, those that only follow from the first one too.
    """
    forced = forced or {}
    for error in errors:
        if error.request == golden.id:
            detail = f"{error.error}: {error.message}"
            return PromptResult(prompt=golden.id, outcome=Outcome.ERROR, rank=error.rank, detail=detail)
    readings = [_read(golden, one, forced.get((one.prompt, one.run, one.rank)), terms) for one in answers]
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
    return _result(golden, different, terms)


def _read(golden: GoldenPrompt, answer: Transcript, forced: Transcript | None, terms: Terms) -> _Reading:
    if answer.broken is not None:
        return _Reading(answer, Outcome.ERROR, detail=answer.broken)
    where = f" on rank {answer.rank}{_in_pass(answer.run)}"
    step = _first_difference(golden.ids, answer)
    if step is None:
        said = _wrong_end(golden.ids, answer, terms.stop_ids)
        return (
            _Reading(answer, Outcome.LENGTH, len(golden.ids), said + where) if said else _Reading(answer, Outcome.EXACT)
        )
    if ties := near_ties(golden, answer, step, forced, terms.ties):
        worst = max(tie.margin_ulp for tie in ties)
        detail = f"{len(ties)} of {len(golden.ids)} steps, {worst:.3g} of {terms.ties.bound:.3g} ULP at most"
        return _Reading(answer, Outcome.NEAR_TIE, step, detail + where, near_ties=ties)
    loop = loop_at_end(answer.ids, golden.ids)
    outcome, detail = _classify(golden.ids, answer, forced, loop)
    if outcome is Outcome.COLLAPSE:
        loop = None
    if loop is not None:
        where += f", ending in a loop of {loop.period} that fills {loop.length} tokens"
    return _Reading(answer, outcome, step, detail + where, loop)


def _first_difference(expected: Sequence[int], answer: Transcript) -> int | None:
    """A token whose logits were not finite differs even if its id is right: the argmax of NaN is an accident."""
    for step, token in enumerate(answer.tokens):
        if step >= len(expected) or token.id != expected[step] or not token.finite:
            return step
    return len(answer.tokens) if len(answer.tokens) < len(expected) else None


def _wrong_end(expected: Sequence[int], answer: Transcript, stop_ids: Sequence[int]) -> str:
    """What a rank says of the end of an answer whose tokens are right, if that is wrong."""
    reason = "stop" if expected[-1] in stop_ids else "length"
    for end in answer.ends:
        if (end.reason, end.num_tokens) != (reason, len(expected)):
            said = f"said to end by {end.reason} after {end.num_tokens} tokens"
            return f"{said}, but its {len(expected)} tokens end by {reason}"
    return "said to end more than once" if len(answer.ends) > 1 else ""


def _classify(
    expected: Sequence[int], answer: Transcript, forced: Transcript | None, loop: Loop | None
) -> tuple[Outcome, str]:
    """Outcome of an answer that differs; compared are the tokens up to the shorter end.

    What a free pass runs into follows from its first wrong token. So the steps of a forced pass, where some are wrong,
    name the outcome before a loop does.
    """
    if not all(token.finite for token in answer.tokens):
        return Outcome.COLLAPSE, "logits were not finite"
    if (token := forever(answer.ids, expected)) is not None:
        return Outcome.COLLAPSE, f"token {token} for ever"
    wrong, total, unit = *_wrong(expected, answer), "tokens"
    if forced is not None and _wrong(expected, forced)[0]:
        (wrong, total), unit = _wrong(expected, forced), "forced steps"
    share = f"{wrong} of {total} {unit} wrong"
    if loop is not None and unit == "tokens":
        return Outcome.LOOP, share if wrong else _lengths(expected, answer)
    if wrong:
        return Outcome.CORRUPT if wrong >= CORRUPT_SHARE * total else Outcome.DRIFT, share
    return Outcome.LENGTH, _lengths(expected, answer)


def _lengths(expected: Sequence[int], answer: Transcript) -> str:
    when = "early" if len(answer.ids) < len(expected) else "late"
    return f"{when} end: {len(answer.ids)} tokens instead of {len(expected)}"


def _wrong(expected: Sequence[int], answer: Transcript) -> tuple[int, int]:
    """Wrong tokens, and how many could be compared."""
    pairs = list(zip(answer.ids, expected, strict=False))
    return sum(got != right for got, right in pairs), len(pairs)


def _result(golden: GoldenPrompt, different: Sequence[_Reading], terms: Terms) -> PromptResult:
    """The gravest reading names the outcome; the earliest difference (pass, token, rank) is the evidence."""
    worst = min(different, key=lambda reading: _ORDER.index(reading.outcome))
    first = min(different, key=lambda reading: (reading.transcript.run, reading.step, reading.transcript.rank))
    loop = next((reading.loop for reading in different if reading.loop is not None), None)
    explained = worst.outcome is Outcome.NEAR_TIE
    ties = {tie: None for reading in different for tie in reading.near_ties} if explained else {}
    return PromptResult(
        prompt=golden.id,
        outcome=worst.outcome,
        rank=first.transcript.rank,
        detail=worst.detail,
        loop=loop.period if loop is not None else None,
        loop_tokens=loop.length if loop is not None else None,
        near_ties=tuple(sorted(ties, key=lambda tie: (tie.run, tie.step, tie.got))),
        **_place(golden, first, terms),
    )


def _place(golden: GoldenPrompt, first: _Reading, terms: Terms) -> dict[str, Any]:
    """Where the first difference is: in the answer, in the golden's margins, in the KV cache, in the batch."""
    step, tokens = first.step, first.transcript.tokens
    place: dict[str, Any] = {"step": step}
    if step < len(golden.ids):
        place |= {"expected": golden.ids[step], "margin": _margin(golden, step)}
    if step >= len(tokens):
        return place
    token = tokens[step]
    place |= {"got": token.id, "engine_step": token.engine_step}
    place |= {"lane": token.lane, "bucket": token.bucket, "live": token.live}
    if step < len(golden.steps):
        place["margin_ulp"] = margin_ulp(golden.steps[step], token.id, terms.ties.dtype)
    if terms.page_size is not None:
        # Prefill writes the whole prompt; each later step writes the token that the step before it picked.
        position = len(golden.prompt_ids) + step - 1
        page, slot = divmod(position, terms.page_size)
        place |= {"position": position, "page": page, "slot": slot}
    return place


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


def _in_pass(run: int) -> str:
    return f" in pass {run + 1}" if run else ""

"""Owns where the ranks of an attempt first disagreed and when their batches parted, from what they reported."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from graphcheck.schema.events import StepEvent
from graphcheck.schema.run import AttemptFinished, Disagreement, LogitsSplit, Parting, Stall, Story
from graphcheck.schema.verdicts import Verdict

K = TypeVar("K", bound=tuple[object, ...])

DIVERGED = "fed the golden's tokens through the same graphs, it does not hang: the hang came from tokens that diverged"
MISMATCHED = "fed the golden's tokens through the same graphs, it hangs as well: a mismatched or stuck collective"
_TO_ITS_END = (Verdict.LEAK, Verdict.TOKENS, Verdict.FLAKY, Verdict.VACUOUS, Verdict.UNWITNESSED, Verdict.PASS)


def tell(
    steps: Sequence[StepEvent], stall: Stall | None, verdict: Verdict, forced: AttemptFinished | None
) -> Story | None:
    """The story of an attempt with several ranks; None if its ranks never disagreed and it did not hang."""
    disagreement = first_disagreement(steps)
    parting = first_parting(steps) or (parting_in(stall) if stall is not None else None)
    came_apart = disagreement is not None or parting is not None
    story = Story(
        disagreement=disagreement,
        split=first_split(steps),
        parting=parting,
        cause=_cause(forced, came_apart) if verdict is Verdict.HANG and forced is not None else "",
    )
    return story if story != Story() else None


def first_disagreement(steps: Iterable[StepEvent]) -> Disagreement | None:
    """The first token, in order of engine steps, that two ranks picked differently."""
    tokens: dict[tuple[int, int, str, int], dict[int, int]] = {}
    for step in steps:
        for request, index, token in zip(step.requests, step.index, step.argmax, strict=True):
            tokens.setdefault((step.run, step.step, request, index), {})[step.rank] = token
    first = _first_apart(tokens)
    if first is None:
        return None
    run, number, request, index = first
    return Disagreement(run=run, step=number, prompt=request, index=index, tokens=tokens[first])


def first_split(steps: Iterable[StepEvent]) -> LogitsSplit | None:
    """The first row of logits, in order of engine steps, that ranks computed differently, by the hashes they gave."""
    digests: dict[tuple[int, int, str, int], dict[int, str]] = {}
    for step in steps:
        if step.logits_sha is None:
            continue
        for request, index, digest in zip(step.requests, step.index, step.logits_sha, strict=True):
            digests.setdefault((step.run, step.step, request, index), {})[step.rank] = digest
    first = _first_apart(digests)
    if first is None:
        return None
    run, number, request, index = first
    return LogitsSplit(run=run, step=number, prompt=request, index=index, digests=digests[first])


def first_parting(steps: Iterable[StepEvent]) -> Parting | None:
    """The first engine step that ranks ran with different batches; None if none was finished by two ranks."""
    batches: dict[tuple[int, int], dict[int, tuple[str, int, int | None]]] = {}
    for step in steps:
        batches.setdefault((step.run, step.step), {})[step.rank] = (step.phase, step.live, step.bucket)
    first = _first_apart(batches)
    if first is None:
        return None
    run, number = first
    return Parting(run=run, step=number, batches={rank: _batch(*batch) for rank, batch in batches[first].items()})


def parting_in(stall: Stall) -> Parting | None:
    """Batches that parted in the very step that no rank finished: their last announced collectives differ in rows."""
    stuck = [(journal, journal.tags[-1]) for journal in stall.journals if journal.tags and not journal.finished]
    first = min((tag.number for _, tag in stuck), default=None)
    here = {journal.rank: (journal, tag.rows) for journal, tag in stuck if tag.number == first}
    if len({rows for _, rows in here.values()}) < 2:
        return None
    steps = {journal.step for journal, _ in here.values()}
    batches = {
        rank: f"{journal.phase} of rows={rows}" + (f" as its step {journal.step}" if len(steps) > 1 else "")
        for rank, (journal, rows) in here.items()
    }
    return Parting(step=min(steps), batches=batches)


def _first_apart(by_place: Mapping[K, Mapping[int, object]]) -> K | None:
    """The smallest key whose ranks do not all have the same value."""
    return min((key for key, by_rank in by_place.items() if len(set(by_rank.values())) > 1), default=None)


def _batch(phase: str, live: int, bucket: int | None) -> str:
    return f"{phase} of {live}" + (f" in bucket {bucket}" if bucket is not None else "")


def _cause(forced: AttemptFinished, came_apart: bool) -> str:
    if forced.verdict is Verdict.HANG:
        return MISMATCHED
    if forced.verdict in _TO_ITS_END and not came_apart:
        return "not known: the ranks' tokens agreed, and the hang did not come again in the forced pass"
    return DIVERGED if forced.verdict in _TO_ITS_END else f"not known: the forced pass ended in {forced.verdict}"

"""Owns where the ranks of an attempt first disagreed and when their batches parted, from their step events alone."""

from collections.abc import Iterable, Sequence

from graphcheck.schema.events import StepEvent
from graphcheck.schema.run import AttemptFinished, Disagreement, Parting, Story
from graphcheck.schema.verdicts import Verdict

DIVERGED = "fed the golden's tokens through the same graphs, it does not hang: the hang came from tokens that diverged"
MISMATCHED = "fed the golden's tokens through the same graphs, it hangs as well: a mismatched or stuck collective"


def tell(steps: Sequence[StepEvent], verdict: Verdict, forced: AttemptFinished | None) -> Story | None:
    """The story of an attempt with several ranks; None if its ranks never disagreed and it did not hang."""
    story = Story(
        disagreement=first_disagreement(steps),
        parting=first_parting(steps),
        cause=_cause(forced) if verdict is Verdict.HANG and forced is not None else "",
    )
    return story if story != Story() else None


def first_disagreement(steps: Iterable[StepEvent]) -> Disagreement | None:
    """The first token, in order of engine steps, that two ranks picked differently."""
    tokens: dict[tuple[int, int, str, int], dict[int, int]] = {}
    for step in steps:
        for request, index, token in zip(step.requests, step.index, step.argmax, strict=True):
            tokens.setdefault((step.run, step.step, request, index), {})[step.rank] = token
    split = [key for key, by_rank in tokens.items() if len(set(by_rank.values())) > 1]
    if not split:
        return None
    run, number, request, index = first = min(split)
    return Disagreement(run=run, step=number, prompt=request, index=index, tokens=tokens[first])


def first_parting(steps: Iterable[StepEvent]) -> Parting | None:
    """The first engine step that ranks ran with different batches; None if none was finished by two ranks."""
    batches: dict[tuple[int, int], dict[int, tuple[str, int, int | None]]] = {}
    for step in steps:
        batches.setdefault((step.run, step.step), {})[step.rank] = (step.phase, step.live, step.bucket)
    parted = [key for key, by_rank in batches.items() if len(set(by_rank.values())) > 1]
    if not parted:
        return None
    run, number = first = min(parted)
    return Parting(run=run, step=number, batches={rank: _batch(*batch) for rank, batch in batches[first].items()})


def _batch(phase: str, live: int, bucket: int | None) -> str:
    return f"{phase} of {live}" + (f" in bucket {bucket}" if bucket is not None else "")


def _cause(forced: AttemptFinished) -> str:
    return MISMATCHED if forced.verdict is Verdict.HANG else DIVERGED

"""Owns drawing the verdicts of a recorded run again, from what its folder holds."""

from collections.abc import Iterator

from graphcheck.harness.judging.case import Forced
from graphcheck.harness.judging.judge import UNJUDGED, judge
from graphcheck.harness.records.run_folder import Run
from graphcheck.schema.errors import GoldenError, RunFolderError
from graphcheck.schema.run import AttemptFinished, RecordedAttempt
from graphcheck.schema.verdicts import Outcome


def rejudged(run: Run, attempt: RecordedAttempt) -> AttemptFinished | None:
    """The attempt with its verdict drawn again from steps, facts and golden; None if it never finished.

    One that never ran keeps its verdict: nothing is recorded that could change it.

    Raises:
        GoldenCorrupt, RunFolderError: the run's copy of a golden, or the steps of an attempt, are damaged.
    """
    started, finished = attempt.started, attempt.finished
    if finished is None or finished.verdict in UNJUDGED:
        return finished
    golden, events, forced = run.golden(started), run.events(started.key), _forced(run, started.key)
    return judge(started, golden, run.info.matrix.policy, events, finished.facts, finished.at, forced)


def contradictions(run: Run) -> Iterator[str]:
    """A sentence for each recorded verdict that the folder does not bear out, those of forced passes included."""
    for attempt in (*run.every, *run.forced.values()):
        recorded = attempt.finished
        if recorded is None:
            continue
        try:
            again = rejudged(run, attempt)
        except (GoldenError, RunFolderError, ValueError, LookupError) as error:
            yield f"{recorded.key}: its verdict {recorded.verdict} cannot be drawn again: {error}"
            continue
        assert again is not None
        if again.verdict is not recorded.verdict:
            yield f"{recorded.key}: recorded as {recorded.verdict}, but what is recorded of it says {again.verdict}"
        elif _claims(again) != _claims(recorded):
            yield f"{recorded.key}: what it is said to have run on, or its exact prompts, is not what is recorded of it"


def _claims(finished: AttemptFinished) -> tuple[object, ...]:
    """What a summary adds up, apart from the verdict."""
    exact = {prompt.prompt for prompt in finished.prompts if prompt.outcome is Outcome.EXACT}
    return finished.backend, finished.declared_eager, exact


def _forced(run: Run, key: str) -> Forced | None:
    forced = run.forced.get(key)
    if forced is None or forced.finished is None:
        return None
    return Forced(run.events(forced.started.key), forced.finished)

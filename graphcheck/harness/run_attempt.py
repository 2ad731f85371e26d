"""Owns one attempt from start to verdict. What goes wrong inside it is its verdict, never an exception."""

from graphcheck.harness.judge import judge
from graphcheck.harness.limits import Limits
from graphcheck.harness.model_folder import ModelFolder
from graphcheck.harness.prepare import Ready
from graphcheck.harness.request import Plan
from graphcheck.harness.run_store import RunStore, timestamp
from graphcheck.harness.supervise import Clock, supervise
from graphcheck.schema.errors import TargetError
from graphcheck.schema.events import ErrorEvent, Event, StepEvent
from graphcheck.schema.run import AttemptFacts, AttemptFinished, AttemptStarted, PromptResult
from graphcheck.targets.base import Launch


def run_attempt(ready: Ready, started: AttemptStarted, plan: Plan, store: RunStore, clock: Clock) -> AttemptFinished:
    """Starts, supervises and judges an attempt; its steps, logs and stacks go to `store`."""
    planned = ready.planned
    launch = Launch(attempt=planned.attempt, model_dir=planned.model.path, settings=planned.settings)
    limits = Limits.for_device(str(planned.settings.get("device", "cpu")))
    steps: list[StepEvent] = []
    with store.steps(started.key) as keep:

        def on_event(event: Event) -> None:
            keep(event)
            if isinstance(event, StepEvent):
                steps.append(event)

        try:
            session = plan.target.start(launch, ready.workload, store.attempt_dir(started.key))
            facts = supervise(session, limits, on_event, clock)
        except TargetError as error:
            facts = AttemptFacts(errors=(_as_event(error),))
    finished = judge(started, ready.golden, plan.loaded.matrix.policy, steps, facts, timestamp())
    return finished.model_copy(update={"prompts": tuple(_with_text(p, planned.model) for p in finished.prompts)})


def _as_event(error: TargetError) -> ErrorEvent:
    """A target that could not start has no ranks yet; the error is put down to the first."""
    return ErrorEvent(rank=0, kind="crash", error=type(error).__name__, message=str(error), phase="start")


def _with_text(prompt: PromptResult, model: ModelFolder) -> PromptResult:
    """The ids of a first difference as words, for a model with a tokenizer."""

    def text(token: int | None) -> str | None:
        return model.decode((token,)) or None if token is not None else None

    return prompt.model_copy(update={"expected_text": text(prompt.expected), "got_text": text(prompt.got)})

"""Owns one attempt from start to verdict. What goes wrong inside it is its verdict, never an exception."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from graphcheck.harness.judge import Forced, judge
from graphcheck.harness.limits import STEPPING, Limits
from graphcheck.harness.model_folder import ModelFolder
from graphcheck.harness.prepare import Ready, Unready
from graphcheck.harness.request import Plan
from graphcheck.harness.resolve import forced_workload
from graphcheck.harness.run_store import RunStore, timestamp
from graphcheck.harness.supervise import Clock, supervise
from graphcheck.schema.errors import TargetError
from graphcheck.schema.events import ErrorEvent, Event, StepEvent
from graphcheck.schema.run import AttemptFacts, AttemptFinished, AttemptStarted, PromptResult
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.base import Launch

Record = Callable[[AttemptStarted | AttemptFinished], None]
"""Puts a record on disk and tells whoever follows the run."""


@dataclass(frozen=True)
class Attempter:
    """Runs the attempts of one plan into one run folder."""

    plan: Plan
    store: RunStore
    clock: Clock
    record: Record

    def run(self, ready: Ready) -> AttemptFinished:
        """Runs a free pass, and a forced one if that was red in a way that a forced pass can explain."""
        started = started_record(ready)
        self.record(started)
        steps, facts = self._observe(ready, started)
        finished = self._judge(ready, started, steps, facts, None)
        if self.plan.capabilities.gives_forced and _wants_forced_pass(finished):
            finished = self._judge(ready, started, steps, facts, self._forced_pass(ready))
        self.record(finished)
        return finished

    def _forced_pass(self, ready: Ready) -> Forced:
        """The golden's tokens fed through the same graphs: every step is judged on its own."""
        attempt = ready.planned.attempt.model_copy(update={"feed": "forced"})
        ready = replace(
            ready,
            planned=replace(ready.planned, attempt=attempt),
            workload=forced_workload(ready.workload, ready.golden),
        )
        started = started_record(ready)
        self.record(started)
        steps, facts = self._observe(ready, started)
        finished = self._judge(ready, started, steps, facts, None)
        self.record(finished)
        return Forced(tuple(steps), finished)

    def _observe(self, ready: Ready, started: AttemptStarted) -> tuple[list[StepEvent], AttemptFacts]:
        """Starts and supervises; steps, logs and stacks go to the store."""
        planned = ready.planned
        launch = Launch(attempt=planned.attempt, model_dir=planned.model.path, settings=planned.settings)
        limits = Limits.for_device(str(planned.settings.get("device", "cpu")))
        steps: list[StepEvent] = []
        with self.store.steps(started.key) as keep:

            def on_event(event: Event) -> None:
                keep(event)
                if isinstance(event, StepEvent):
                    steps.append(event)

            try:
                session = self.plan.target.start(launch, ready.workload, self.store.attempt_dir(started.key))
                return steps, supervise(session, limits, on_event, self.clock)
            except TargetError as error:
                return steps, AttemptFacts(errors=(_as_event(error),))

    def _judge(
        self,
        ready: Ready,
        started: AttemptStarted,
        steps: list[StepEvent],
        facts: AttemptFacts,
        forced: Forced | None,
    ) -> AttemptFinished:
        policy, model = self.plan.loaded.matrix.policy, ready.planned.model
        finished = judge(started, ready.golden, policy, steps, facts, timestamp(), forced)
        return finished.model_copy(update={"prompts": tuple(_with_text(prompt, model) for prompt in finished.prompts)})


def started_record(one: Ready | Unready) -> AttemptStarted:
    """The record of an attempt that is about to start, or that cannot."""
    planned = one.planned
    return AttemptStarted(
        key=planned.attempt.key,
        attempt=planned.attempt,
        model=planned.model.name,
        suite=planned.suite.name,
        dtype=planned.dtype,
        settings=planned.settings,
        workload=one.workload if isinstance(one, Ready) else None,
        at=timestamp(),
    )


def _wants_forced_pass(finished: AttemptFinished) -> bool:
    """Wrong tokens, or a hang in a step: one in load or capture has nothing to feed."""
    if finished.verdict is Verdict.TOKENS:
        return True
    stall = finished.facts.stall
    return finished.verdict is Verdict.HANG and stall is not None and stall.phase in STEPPING


def _as_event(error: TargetError) -> ErrorEvent:
    """A target that could not start has no ranks yet; the error is put down to the first."""
    return ErrorEvent(rank=0, kind="crash", error=type(error).__name__, message=str(error), phase="start")


def _with_text(prompt: PromptResult, model: ModelFolder) -> PromptResult:
    """The ids of a first difference as words, for a model with a tokenizer."""

    def text(token: int | None) -> str | None:
        return model.decode((token,)) or None if token is not None else None

    return prompt.model_copy(update={"expected_text": text(prompt.expected), "got_text": text(prompt.got)})

"""Owns one attempt from start to verdict. What goes wrong inside it is its verdict, never an exception."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from graphcheck.harness.files.model_folder import ModelFolder
from graphcheck.harness.judging.case import Forced
from graphcheck.harness.judging.judge import judge
from graphcheck.harness.machine.devices import is_shared
from graphcheck.harness.planning.prepare import Ready, Unready
from graphcheck.harness.planning.request import Plan
from graphcheck.harness.planning.resolve import forced_workload
from graphcheck.harness.records.run_store import RunStore, timestamp
from graphcheck.harness.running.device_memory import DeviceMemory
from graphcheck.harness.running.limits import STEPPING, Limits
from graphcheck.harness.running.observe import UNOBSERVED, Observer, Progress
from graphcheck.harness.running.same_code import SameCode
from graphcheck.harness.running.supervise import Clock, supervise
from graphcheck.schema.errors import TargetError
from graphcheck.schema.events import ErrorEvent, Event, FinishedEvent, LoadedEvent, Phase, StepEvent
from graphcheck.schema.run import AttemptFacts, AttemptFinished, AttemptStarted, PromptResult
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.base import Launch

Judged = StepEvent | FinishedEvent
"""The events that verdicts are drawn from."""

Record = Callable[[AttemptStarted | AttemptFinished], None]
"""Puts a record on disk and tells whoever follows the run."""


@dataclass(frozen=True)
class Attempter:
    """Runs the attempts of one plan into one run folder."""

    plan: Plan
    store: RunStore
    clock: Clock
    record: Record
    memory: DeviceMemory
    observer: Observer = UNOBSERVED
    code: SameCode = field(default_factory=SameCode)

    def run(self, ready: Ready) -> AttemptFinished:
        """Runs a free pass, and a forced one if that was red in a way that a forced pass can explain."""
        started = started_record(ready)
        self.record(started)
        events, facts = self._observe(ready, started)
        finished = self._judge(ready, started, events, facts, None)
        if self.plan.capabilities.gives_forced and _wants_forced_pass(finished):
            # What is known by now must outlive whatever ends the forced pass; nobody is told before that has ended.
            self.store.append(_without_forced_pass(finished))
            finished = self._judge(ready, started, events, facts, self.forced_pass(ready))
        self.record(finished)
        return finished

    def forced_pass(self, ready: Ready) -> Forced:
        """The golden's tokens fed through the same graphs: every step is judged on its own."""
        attempt = ready.planned.attempt.model_copy(update={"feed": "forced"})
        ready = replace(
            ready,
            planned=replace(ready.planned, attempt=attempt),
            workload=forced_workload(ready.workload, ready.golden.prompts),
        )
        started = started_record(ready)
        self.record(started)
        events, facts = self._observe(ready, started)
        finished = self._judge(ready, started, events, facts, None)
        self.record(finished)
        return Forced(tuple(events), finished)

    def _observe(self, ready: Ready, started: AttemptStarted) -> tuple[list[Judged], AttemptFacts]:
        """Starts and supervises; steps, logs and stacks go to the store."""
        planned = ready.planned
        launch = Launch(attempt=planned.attempt, model_dir=planned.model.path, settings=planned.settings)
        shared = is_shared(self.plan.capabilities, planned.settings)
        limits = Limits.for_device(str(planned.settings.get("device", "cpu")), shared=shared)
        events: list[Judged] = []
        loaded: dict[int, str] = {}
        num_tokens = 0
        with self.store.steps(started.key) as keep:

            def on_event(event: Event) -> None:
                nonlocal num_tokens
                keep(event)
                if isinstance(event, StepEvent) and event.rank == 0:
                    num_tokens += len(event.ids)
                if isinstance(event, Judged):
                    events.append(event)
                if isinstance(event, LoadedEvent):
                    loaded[event.rank] = self.store.add_loaded(event.loaded)
                    self.code.see(f"rank {event.rank} of {started.key}", event.loaded)

            def on_look(phase: Phase, step: int) -> None:
                self.observer.progress(Progress(phase, step, num_tokens))

            try:
                session = self.plan.target.start(launch, ready.workload, self.store.attempt_dir(started.key))
            except (TargetError, OSError) as error:  # out of disk, of processes, of open files
                facts = AttemptFacts(errors=(_as_event(error),))
            else:
                facts = supervise(session, limits, on_event, self.clock, on_look)
        return events, facts.model_copy(update={"leaked": self.memory.left(started), "loaded": loaded})

    def _judge(
        self,
        ready: Ready,
        started: AttemptStarted,
        events: list[Judged],
        facts: AttemptFacts,
        forced: Forced | None,
    ) -> AttemptFinished:
        policy, model = self.plan.loaded.matrix.policy, ready.planned.model
        finished = judge(started, ready.golden, policy, events, facts, timestamp(), forced)
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
        calibration=one.calibration if isinstance(one, Ready) else None,
        at=timestamp(),
    )


def _wants_forced_pass(finished: AttemptFinished) -> bool:
    """Wrong tokens, or a hang in a step: one in load or capture has nothing to feed. Not while memory is held."""
    if finished.facts.leaked:
        return False
    if finished.verdict is Verdict.TOKENS:
        return True
    stall = finished.facts.stall
    return finished.verdict is Verdict.HANG and stall is not None and stall.phase in STEPPING


def _without_forced_pass(finished: AttemptFinished) -> AttemptFinished:
    """What stays on record if the forced pass never ends."""
    return finished.model_copy(update={"reason": f"{finished.reason}; its forced pass did not end"})


def _as_event(error: TargetError | OSError) -> ErrorEvent:
    """A target that could not start has no ranks yet; the error is put down to the first."""
    return ErrorEvent(rank=0, kind="crash", error=type(error).__name__, message=str(error), phase="start")


def _with_text(prompt: PromptResult, model: ModelFolder) -> PromptResult:
    """The ids of a first difference as words, for a model with a tokenizer."""

    def text(token: int | None) -> str | None:
        return model.decode((token,)) or None if token is not None else None

    return prompt.model_copy(update={"expected_text": text(prompt.expected), "got_text": text(prompt.got)})

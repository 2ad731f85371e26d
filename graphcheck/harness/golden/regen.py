"""Owns making goldens: the reference runs each suite once, and two other computations must agree with it."""

import importlib.metadata
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from graphcheck.harness.files.golden_store import golden_name
from graphcheck.harness.files.model_folder import ModelFolder
from graphcheck.harness.golden.pending import Filed, GoldenPlace, file_golden
from graphcheck.harness.golden.quorum import Readings, check_answers, mark_soft
from graphcheck.harness.judging.death import describe_exit, is_bad
from graphcheck.harness.planning.plan import PlannedAttempt
from graphcheck.harness.planning.resolve import forced_workload, resolve_for_golden
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.errors import GoldenDisputed, TargetError
from graphcheck.schema.events import ErrorEvent, Event, ExitEvent, FinishedEvent, StepEvent
from graphcheck.schema.golden import GoldenPrompt, GoldenStep
from graphcheck.schema.suite import Workload
from graphcheck.targets.base import Launch, Target
from graphcheck.targets.registry import load_target

REFERENCE_TARGET = "transformers"
REFERENCE = "transformers generate, one prompt at a time, eager attention, float32 arithmetic"
SECOND = "transformers, fed with these tokens in one pass without a cache, sdpa attention, float64 arithmetic"
_VERSIONS_OF = ("tokenizers", "torch", "transformers")
NUM_COMPUTATIONS = 3
_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Making:
    """Where the making of a golden is: in which of its computations, from 1, and at which prompt; None: it loads."""

    golden: Path
    computation: int
    prompt: str | None


OnPoll = Callable[[Making], None]
"""Hears of it each time the reference has been asked for news, whether or not there were any."""


def regen(
    planned: Iterable[PlannedAttempt], place: GoldenPlace, command: str, on_poll: OnPoll = lambda making: None
) -> list[Filed]:
    """Makes the golden of every model, suite and dtype that a plan uses; none is written over.

    Args:
        command: what made them, as the file shall say it; free of paths (`graphcheck golden regen default`).
        on_poll: hears where it is, once a second or more often.

    Raises:
        SuiteError, ModelError: a suite does not fit its model.
        TargetError: the reference failed.
        GoldenDisputed: another computation does not agree with it.
        FileError: the golden folder cannot be written.
    """
    wanted = {(one.model.name, one.suite.name, one.dtype): one for one in planned}
    target = load_target(REFERENCE_TARGET)
    try:
        return [_regen(target, one, place, command, on_poll) for one in wanted.values()]
    finally:
        target.close()


def _regen(target: Target, planned: PlannedAttempt, place: GoldenPlace, command: str, on_poll: OnPoll) -> Filed:
    model, suite, dtype = planned.model, planned.suite, planned.dtype
    name = golden_name(model.name, suite.name, dtype)

    def run(computation: int, workload: Workload, **settings: AxisValue) -> list[Event]:
        def tell(prompt: str | None) -> None:
            on_poll(Making(name, computation, prompt))

        return _run(target, model, workload, {"dtype": dtype, **settings}, tell)

    workload = resolve_for_golden(suite, model)
    events = run(1, workload)
    prompts = [_golden_prompt(model, request.id, request.prompt_ids, events) for request in workload.requests]
    forced = forced_workload(workload, prompts)
    second = _readings(run(2, forced, attention="sdpa", arithmetic="float64"))
    in_dtype = _readings(run(3, forced, attention="sdpa", arithmetic=dtype))
    try:
        num_right = check_answers(model.name, suite, prompts)
        right = (f"the right answers of {num_right} prompts, known without a model",) if num_right else ()
        marked, quorum = mark_soft(prompts, second, in_dtype, (SECOND, *right))
    except GoldenDisputed as dispute:
        raise GoldenDisputed(f"golden {name}: {dispute.value}", dispute.rule, dispute.todo) from None
    header = {
        "model_name": model.name,
        "model": model.fingerprint(),
        "suite": suite.name,
        "suite_sha": suite.sha,
        "dtype": dtype,
        "reference": REFERENCE,
        "versions": {name: importlib.metadata.version(name) for name in _VERSIONS_OF},
        "quorum": quorum.model_dump(),
        "made_on": datetime.now(UTC).date().isoformat(),
        "command": command,
    }
    return file_golden(name, header, marked, place)


def _readings(events: Sequence[Event]) -> Readings:
    readings: dict[str, list[tuple[tuple[int, float], ...]]] = {}
    for event in events:
        if isinstance(event, StepEvent):
            readings.setdefault(event.requests[0], []).append(event.top[0] if event.top else ())
    return readings


def _run(
    target: Target,
    model: ModelFolder,
    workload: Workload,
    settings: dict[str, AxisValue],
    tell: Callable[[str | None], None],
) -> list[Event]:
    """Everything the reference reported. It has no deadline: nobody but the user waits for it, who hears the prompt."""
    launch = Launch(attempt=Attempt(cell=Cell(axes=settings)), model_dir=model.path, settings=settings)
    events: list[Event] = []
    prompt: str | None = None
    with tempfile.TemporaryDirectory(prefix="graphcheck-regen-") as out_dir:
        session = target.start(launch, workload, Path(out_dir))
        try:
            while not any(isinstance(event, ExitEvent) for event in events):
                new = session.events(_POLL_SECONDS)
                events += new
                prompt = next((event.requests[0] for event in reversed(new) if isinstance(event, StepEvent)), prompt)
                tell(prompt)
                if any(event.event == "phase" and event.phase == "done" for event in new):
                    session.release()
        finally:
            session.kill()
        if failure := _failure(events, Path(out_dir)):
            raise failure
    return events


def _failure(events: list[Event], out_dir: Path) -> TargetError | None:
    todo = "the reference must finish to make a golden"
    for event in events:
        if isinstance(event, ErrorEvent):
            where = f" in prompt {event.request}" if event.request else ""
            return TargetError(f"{event.error}{where}", event.message, todo)
    for event in events:
        if isinstance(event, ExitEvent) and is_bad(event):
            logged = [line for log in out_dir.glob("*.log") for line in log.read_text(errors="replace").splitlines()]
            last = next((line for line in reversed(logged) if line.strip()), "it printed nothing")
            return TargetError(f"the reference: {describe_exit(event)}", last, todo)
    return None


def _golden_prompt(
    model: ModelFolder, prompt_id: str, prompt_ids: tuple[int, ...], events: list[Event]
) -> GoldenPrompt:
    steps = [event for event in events if isinstance(event, StepEvent) and event.requests == (prompt_id,)]
    finished = [event for event in events if isinstance(event, FinishedEvent) and event.request == prompt_id]
    if not finished:
        raise TargetError(f"prompt {prompt_id}", "the reference ended before it finished this prompt", "run it again")
    if not all(finite for step in steps for finite in step.finite):
        raise TargetError(f"prompt {prompt_id}", "logits were not finite", "check the model's weights")
    ids = tuple(step.ids[0] for step in steps)
    return GoldenPrompt(
        id=prompt_id,
        prompt_ids=prompt_ids,
        ids=ids,
        text=model.decode(ids),
        finish=finished[0].reason,
        steps=tuple(GoldenStep(top=step.top[0]) for step in steps if step.top),
    )

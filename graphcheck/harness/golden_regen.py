"""Owns making goldens: the reference runs each suite once, and what it saw becomes the golden."""

import importlib.metadata
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from graphcheck.harness.golden_store import golden_name, write_golden
from graphcheck.harness.model_folder import ModelFolder
from graphcheck.harness.plan import PlannedAttempt
from graphcheck.harness.resolve import resolve_for_golden
from graphcheck.harness.suite_file import LoadedSuite
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.errors import TargetError
from graphcheck.schema.events import ErrorEvent, Event, ExitEvent, FinishedEvent, StepEvent
from graphcheck.schema.golden import GoldenPrompt, GoldenStep
from graphcheck.schema.suite import Workload
from graphcheck.targets.base import Launch, Target
from graphcheck.targets.registry import load_target

REFERENCE_TARGET = "transformers"
REFERENCE = "transformers generate, one prompt at a time, eager attention, float32 arithmetic"
_VERSIONS_OF = ("tokenizers", "torch", "transformers")
_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class RegenResult:
    """One golden made: `changed` is False if the file already held exactly this."""

    path: Path
    model: str
    suite: str
    dtype: str
    num_prompts: int
    num_tokens: int
    changed: bool


def regen(planned: Iterable[PlannedAttempt], golden_dir: Path, command: str) -> list[RegenResult]:
    """Makes the golden of every model, suite and dtype that a plan uses, under `golden_dir`.

    Args:
        command: what made them, as the file shall say it; free of paths (`graphcheck golden regen default`).

    Raises:
        SuiteError, ModelError: a suite does not fit its model.
        TargetError: the reference failed.
        FileError: `golden_dir` cannot be written.
    """
    wanted = {(one.model.name, one.suite.name, one.dtype): one for one in planned}
    target = load_target(REFERENCE_TARGET)
    try:
        return [_regen(target, one.model, one.suite, one.dtype, golden_dir, command) for one in wanted.values()]
    finally:
        target.close()


def _regen(
    target: Target, model: ModelFolder, suite: LoadedSuite, dtype: str, golden_dir: Path, command: str
) -> RegenResult:
    workload = resolve_for_golden(suite, model)
    events = _run(target, model, workload, dtype)
    prompts = [_golden_prompt(model, request.id, request.prompt_ids, events) for request in workload.requests]
    path = golden_dir / golden_name(model.name, suite.name, dtype)
    header = {
        "model_name": model.name,
        "model": model.fingerprint(),
        "suite": suite.name,
        "suite_sha": suite.sha,
        "dtype": dtype,
        "reference": REFERENCE,
        "versions": {name: importlib.metadata.version(name) for name in _VERSIONS_OF},
        "made_on": datetime.now(UTC).date().isoformat(),
        "command": command,
    }
    changed = write_golden(path, header, prompts)
    num_tokens = sum(len(prompt.ids) for prompt in prompts)
    return RegenResult(path, model.name, suite.name, dtype, len(prompts), num_tokens, changed)


def _run(target: Target, model: ModelFolder, workload: Workload, dtype: str) -> list[Event]:
    """Everything the reference reported. It has no deadline: nobody but the user waits for it."""
    launch = Launch(attempt=Attempt(cell=Cell(axes={"dtype": dtype})), model_dir=model.path, settings={"dtype": dtype})
    events: list[Event] = []
    with tempfile.TemporaryDirectory(prefix="graphcheck-regen-") as out_dir:
        session = target.start(launch, workload, Path(out_dir))
        try:
            while not any(isinstance(event, ExitEvent) for event in events):
                new = session.events(_POLL_SECONDS)
                events += new
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
        if isinstance(event, ExitEvent) and event.status != 0:
            ended = f"signal {event.signal}" if event.signal else f"exit status {event.status}"
            logged = [line for log in out_dir.glob("*.log") for line in log.read_text(errors="replace").splitlines()]
            last = next((line for line in reversed(logged) if line.strip()), "it printed nothing")
            return TargetError(f"the reference ended with {ended}", last, todo)
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

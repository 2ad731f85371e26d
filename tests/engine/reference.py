"""Owns starting the reference on two short prompts, in a process or in this one, and reading what it reported."""

from pathlib import Path
from typing import Any

import pytest

from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.events import Event, StepEvent
from graphcheck.schema.suite import Request, Workload
from graphcheck.targets.base import Launch
from graphcheck.targets.registry import load_target
from graphcheck.targets.transformers.target import WorkerSession
from tests.inline_reference import InlineSession
from tests.tiny_model import EOS

REQUESTS = (
    Request(id="a", prompt_ids=(1, 2, 3, 4, 5, 6), max_new_tokens=12, stop_ids=(EOS,)),
    Request(id="b", prompt_ids=(9,), max_new_tokens=5, stop_ids=(EOS,)),
)


def start(
    model_dir: Path,
    out_dir: Path,
    dtype: str = "float32",
    settings: dict[str, AxisValue] | None = None,
    **changes: Any,
) -> WorkerSession:
    """Starts the worker; `changes` are fields of Workload."""
    workload = Workload(suite="s", requests=REQUESTS).model_copy(update=changes)
    settings = {"dtype": dtype, **(settings or {})}
    launch = Launch(attempt=Attempt(cell=Cell(axes=settings)), model_dir=model_dir, settings=settings)
    session = load_target("transformers").start(launch, workload, out_dir)
    assert isinstance(session, WorkerSession | InlineSession)
    return session


def run_inline(model_dir: Path, out_dir: Path, **options: Any) -> list[Event]:
    """All that the worker reports, without a process of its own; `options` as of `start`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphcheck.targets.transformers.target.WorkerSession", InlineSession)
        return list(start(model_dir, out_dir, **options).events(0.0))


def of(kind: type, events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def ids(events: list[Event], request: str, run: int = 0) -> tuple[int, ...]:
    return tuple(step.ids[0] for step in of(StepEvent, events) if step.requests == (request,) and step.run == run)

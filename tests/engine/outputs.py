"""What the engine's tests compare: each request's tokens and logits digests, from one process or from many ranks."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graphcheck.engine.engine import Engine
from graphcheck.engine.errors import RequestError
from graphcheck.engine.events import FinishReport, StepReport
from graphcheck.engine.request import Request
from graphcheck.harness.running.limits import Limits
from graphcheck.harness.running.supervise import supervise
from graphcheck.schema.attempt import Attempt, Cell, Delay
from graphcheck.schema.events import Event, StepEvent
from graphcheck.schema.run import AttemptFacts
from graphcheck.schema.suite import Request as WorkloadRequest
from graphcheck.schema.suite import Workload
from graphcheck.targets.base import Launch
from graphcheck.targets.bundled.target import BundledTarget


@dataclass
class Collected:
    """Reports of one engine in this process."""

    tokens: dict[str, list[int]] = field(default_factory=dict)
    argmax: dict[str, list[int]] = field(default_factory=dict)
    steps: list[StepReport] = field(default_factory=list)
    errors: list[RequestError] = field(default_factory=list)

    def __call__(self, report: StepReport | FinishReport | RequestError) -> None:
        if isinstance(report, RequestError):
            self.errors.append(report)
        if isinstance(report, StepReport):
            self.steps.append(report)
            for request, token, argmax in zip(report.requests, report.next_ids, report.argmax_ids, strict=True):
                self.tokens.setdefault(request, []).append(token)
                self.argmax.setdefault(request, []).append(argmax)


def run_engine(engine: Engine, requests: Sequence[Request]) -> Collected:
    collected = Collected()
    engine.run(requests, collected)
    return collected


def random_requests(count: int, *, vocab: int, max_new_tokens: int = 12, seed: int = 1) -> list[Request]:
    """Prompts of 3 to 40 tokens; later ones arrive later."""
    draw = random.Random(seed)
    return [
        Request(
            id=f"r{number}",
            prompt_ids=tuple(draw.randrange(1, vocab) for _ in range(draw.randrange(3, 41))),
            arrival=number // 4 * 3,
            max_new_tokens=max_new_tokens,
        )
        for number in range(count)
    ]


def run_attempt(
    target: BundledTarget,
    folder: Path,
    requests: Sequence[Request],
    out_dir: Path,
    fixes_off: tuple[str, ...] = (),
    delays: tuple[Delay, ...] = (),
    **settings: int | str,
) -> tuple[AttemptFacts, list[StepEvent]]:
    """Runs an attempt in real rank processes, supervised."""
    events: list[Event] = []
    cell = Cell(axes={"tp": settings.get("tp", 1), "graph": settings.get("graph", "off")})
    defaults = {axis.name: axis.default for axis in target.describe().axes}
    out_dir.mkdir(parents=True, exist_ok=True)
    session = target.start(
        Launch(
            attempt=Attempt(cell=cell, fixes_off=fixes_off, delays=delays),
            model_dir=folder,
            settings=defaults | settings,
        ),
        Workload(suite="test", requests=tuple(WorkloadRequest(**vars(request)) for request in requests)),
        out_dir,
    )
    facts = supervise(session, Limits.for_device(str(settings.get("device", "cpu"))), events.append)
    return facts, [event for event in events if isinstance(event, StepEvent)]

"""Owns measuring how far an engine that is known to be good strays from a golden: how far apart a near tie may be.

The golden's tokens are fed through every cell with all fixes on, so that each step is one sample: how far the gaps
between the golden's best logits moved, as the engine computes them. The farthest of n samples is the bound; if steps
are alike, one more step passes it with a chance of 1 in n + 1. No more is claimed, and nothing is chosen by hand.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import ceil, inf
from pathlib import Path

from graphcheck.harness.files.calibration_store import (
    calibration_name,
    calibrations_bytes,
    find_calibrations,
    made_for,
)
from graphcheck.harness.files.golden_store import golden_folders, load_golden, replace_file, wanted_golden_dir
from graphcheck.harness.golden.measurable import cells_that_round, check_is_good, check_target
from graphcheck.harness.golden.quorum import movements
from graphcheck.harness.judging.near_tie import ulp
from graphcheck.harness.machine.devices import DeviceCheck
from graphcheck.harness.machine.environment import environment
from graphcheck.harness.planning.golden_commands import calibrate_command, regen_command, without_places
from graphcheck.harness.planning.plan import PlannedAttempt
from graphcheck.harness.planning.prepare import Ready
from graphcheck.harness.planning.request import Plan, RunRequest, make_plan
from graphcheck.harness.planning.resolve import resolve
from graphcheck.harness.records.run_store import RunStore
from graphcheck.harness.running.device_memory import DeviceMemory
from graphcheck.harness.running.execute import Surroundings
from graphcheck.harness.running.observe import UNOBSERVED, Observer
from graphcheck.harness.running.run_attempt import Attempter, Judged
from graphcheck.schema.base import AxisValue
from graphcheck.schema.errors import GoldenError, TargetError, UsageError
from graphcheck.schema.events import StepEvent
from graphcheck.schema.golden import Calibration, Calibrations, Golden
from graphcheck.schema.run import AttemptFinished, AttemptStarted
from graphcheck.targets.base import Target

_TOP = "logits=top"
_VERSIONS_OF = ("torch", "numpy", "torch_cuda")
_DECIMALS = 1000
"""Bounds are kept, rounded up, to this part of a ULP."""


_ANYTHING = Calibration(
    made_for={},
    bound=inf,
    num_near_ties=1,
    num_steps=1,
    cells=(),
    repeats=1,
    environment={},
    made_on="",
    command="",
)
"""While it is being measured, whatever the golden ranks among its best may be a near tie, as often as it likes."""


@dataclass(frozen=True)
class Calibrated:
    """The calibrations of one golden; `written` says whether the file changed."""

    path: Path
    calibrations: tuple[Calibration, ...]
    written: bool


@dataclass
class _Sample:
    """What the cells with the same arithmetic showed so far."""

    golden: Golden
    bound: float = 0.0
    num_near_ties: int = 0
    num_steps: int = 0
    cells: list[str] = field(default_factory=list)


def calibrate(
    request: RunRequest,
    repeats: int,
    *,
    writes: bool = True,
    observer: Observer = UNOBSERVED,
    surroundings: Surroundings | None = None,
) -> list[Calibrated]:
    """Measures every model, suite and dtype of a matrix, each for all the arithmetic that its cells have.

    Cells whose arithmetic is bit-exact are left out: there a bound would excuse bugs.

    Raises:
        UsageError: an option, a file or a target that cannot be used, a cell that has no devices here, or a matrix
            whose cells are all bit-exact.
        GoldenError: a golden is missing or not to be trusted.
        GoldenDisputed: a cell is red, or differs where the golden is sure: this engine is not known to be good.
        ProvenanceError: ranks ran other code than ranks before.
        TargetError: a rank did not report what it was asked for.
        FileError: the golden folder cannot be written.
    """
    surroundings = surroundings or Surroundings()

    def load_measurable(name: str) -> Target:
        """Refused here, a target without `logits` is not refused for a setting that nobody typed."""
        target = surroundings.load_target(name)
        check_target(target.describe())
        return target

    plan = make_plan(replace(request, settings=(_TOP, *request.settings)), load_measurable)
    folders = golden_folders(wanted_golden_dir(request.golden_dir), plan.loaded.path)
    try:
        cells = [_ready(planned, folders, request) for planned in cells_that_round(plan)]
        samples = _measure(plan, cells, repeats, observer, surroundings)
    finally:
        plan.target.close()
    command = calibrate_command(without_places(request, plan.loaded.name))
    command += f" --repeats {repeats}" if repeats > 1 else ""
    return [
        _file(golden, measured, folders, writes=writes) for golden, measured in _by_golden(samples, command, repeats)
    ]


def _ready(planned: PlannedAttempt, folders: Sequence[Path], request: RunRequest) -> Ready:
    regen = regen_command(request)
    golden = load_golden(planned.model, planned.suite, planned.dtype, folders, regen)
    return Ready(planned, golden, resolve(planned.suite, planned.model, golden, regen=regen), _ANYTHING)


def _repeat(cell: Ready, number: int) -> Ready:
    attempt = cell.planned.attempt.model_copy(update={"repeat": number, "feed": "forced"})
    return replace(cell, planned=replace(cell.planned, attempt=attempt))


_Key = tuple[str, str, str, tuple[tuple[str, AxisValue], ...]]
"""Model, suite, dtype, and what a calibration is made for."""


def _measure(
    plan: Plan, cells: Sequence[Ready], repeats: int, observer: Observer, surroundings: Surroundings
) -> dict[_Key, _Sample]:
    devices = DeviceCheck(plan.capabilities, surroundings.count_devices)
    memory = DeviceMemory(plan.capabilities, surroundings.device_memory, surroundings.clock)
    samples: dict[_Key, _Sample] = {}
    passes = [(cell, [_repeat(cell, number) for number in range(repeats)]) for cell in cells]

    def tell(record: AttemptStarted | AttemptFinished) -> None:
        if isinstance(record, AttemptStarted):
            observer.started(record)
        else:
            observer.finished(record)

    observer.planned([one.planned.attempt.key for _, several in passes for one in several])
    with tempfile.TemporaryDirectory(prefix="graphcheck-calibrate-") as folder:
        attempter = Attempter(plan, RunStore(Path(folder)), surroundings.clock, tell, memory, observer)
        for cell, several in passes:
            planned = cell.planned
            if lack := devices.lack(planned.settings) or memory.held(planned.settings):
                raise UsageError(f"cell {planned.attempt.cell.name}", lack, "leave it out with -k")
            arithmetic = tuple(made_for(plan.capabilities.target, planned.settings).items())
            key = (planned.model.name, planned.suite.name, planned.dtype, arithmetic)
            sample = samples.setdefault(key, _Sample(cell.golden))
            sample.cells.append(planned.attempt.cell.name)
            for one in several:
                forced = attempter.forced_pass(one)
                attempter.code.check()
                check_is_good(cell, forced.finished)
                sample.bound = max(sample.bound, *_moved(cell.golden, planned.dtype, forced.events))
                sample.num_near_ties += sum(len(prompt.near_ties) for prompt in forced.finished.prompts)
                sample.num_steps += sum(len(prompt.ids) for prompt in cell.golden.prompts) * cell.workload.passes
    return samples


def _moved(golden: Golden, dtype: str, events: Sequence[Judged]) -> Iterator[float]:
    """By how many ULP each gap between a golden's best logits moved, in every lane of every step; 0 to begin with."""
    yield 0.0
    for event in events:
        if not isinstance(event, StepEvent):
            continue
        if event.top is None:
            where = f"rank {event.rank}, step {event.step}"
            raise TargetError(where, f"{_TOP} was asked for and not given", "calibrate a target that gives it")
        for request, index, top in zip(event.requests, event.index, event.top, strict=True):
            step = golden.prompt(request).steps[index]
            unit = ulp(step.top[0][1], dtype)
            yield from (moved / unit for moved in movements(step, top))


def _by_golden(samples: dict[_Key, _Sample], command: str, repeats: int) -> Iterator[tuple[Golden, list[Calibration]]]:
    found = environment()
    today = datetime.now(UTC).date().isoformat()
    measured: dict[tuple[str, str, str], tuple[Golden, list[Calibration]]] = {}
    for (model, suite, dtype, arithmetic), sample in samples.items():
        calibration = Calibration(
            made_for=dict(arithmetic),
            bound=ceil(sample.bound * _DECIMALS) / _DECIMALS,
            num_near_ties=sample.num_near_ties,
            num_steps=sample.num_steps,
            cells=tuple(sample.cells),
            repeats=repeats,
            environment={name: found[name] for name in _VERSIONS_OF},
            made_on=today,
            command=command,
        )
        measured.setdefault((model, suite, dtype), (sample.golden, []))[1].append(calibration)
    yield from measured.values()


def _file(golden: Golden, measured: Sequence[Calibration], folders: Sequence[Path], *, writes: bool) -> Calibrated:
    """Into the user's folder, which is looked at first; what was measured before for other arithmetic is kept.

    A file that is damaged, or of another golden, holds nothing that could be.
    """
    header = golden.header
    path = folders[0] / calibration_name(header.model_name, header.suite, header.dtype)
    older: Calibrations | None
    try:
        older = find_calibrations(header, folders)
    except GoldenError:
        older = None
    content = calibrations_bytes(header, measured, older)
    return Calibrated(path, tuple(measured), writes and replace_file(path, content))

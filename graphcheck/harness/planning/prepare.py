"""Owns what an attempt needs before it can start: its golden and its workload, or the reason why it cannot."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcheck.harness.files.calibration_store import find_calibrations, made_for
from graphcheck.harness.files.golden_store import golden_folders, load_golden, wanted_golden_dir
from graphcheck.harness.planning.golden_commands import calibrate_command, regen_command
from graphcheck.harness.planning.plan import PlannedAttempt
from graphcheck.harness.planning.request import Plan, RunRequest
from graphcheck.harness.planning.resolve import resolve, resolve_for_golden
from graphcheck.schema.errors import GoldenError, GoldenMissing
from graphcheck.schema.golden import Calibration, Calibrations, Golden
from graphcheck.schema.suite import Workload
from graphcheck.schema.verdicts import Verdict


@dataclass(frozen=True)
class Ready:
    """An attempt that can start. Without a calibration for its settings no difference is a near tie."""

    planned: PlannedAttempt
    golden: Golden
    workload: Workload
    calibration: Calibration | None = None


@dataclass(frozen=True)
class Unready:
    """An attempt that gets its verdict without being started."""

    planned: PlannedAttempt
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class _Known:
    """What is stored of right answers: they themselves, and how far rounding may lead from them."""

    golden: Golden
    calibrations: Calibrations | None


def prepare(plan: Plan, request: RunRequest) -> list[Ready | Unready]:
    """Looks up goldens, each once, and resolves suites. A golden that cannot be used costs its cells alone.

    Raises:
        SuiteError, ModelError: a suite does not fit its model; that is a wrong file, not a red cell.
        UsageError: a folder of goldens was asked for that is none.
    """
    folders = golden_folders(wanted_golden_dir(request.golden_dir), plan.loaded.path)
    known: dict[tuple[str, str, str], _Known | GoldenError] = {}
    prepared: list[Ready | Unready] = []
    for planned in plan.attempts:
        key = (planned.model.name, planned.suite.name, planned.dtype)
        if key not in known:
            # A suite that does not fit its model is a wrong file, whatever is wrong with the golden too.
            resolve_for_golden(planned.suite, planned.model)
            known[key] = _look_up(planned, folders, request)
        prepared.append(_prepare(planned, known[key], plan.capabilities.target, request))
    return prepared


def _look_up(planned: PlannedAttempt, folders: Sequence[Path], request: RunRequest) -> _Known | GoldenError:
    try:
        golden = load_golden(planned.model, planned.suite, planned.dtype, folders, regen_command(request))
        return _Known(golden, find_calibrations(golden.header, folders, calibrate_command(request)))
    except GoldenError as error:
        return error


def _prepare(planned: PlannedAttempt, known: _Known | GoldenError, target: str, request: RunRequest) -> Ready | Unready:
    try:
        if isinstance(known, GoldenError):
            raise known
        workload = resolve(
            planned.suite,
            planned.model,
            known.golden,
            ignore_eos=request.ignore_eos,
            regen=regen_command(request),
        )
        measured = known.calibrations.find(made_for(target, planned.settings)) if known.calibrations else None
        return Ready(planned, known.golden, workload, measured)
    except GoldenError as error:
        verdict = Verdict.MISSING if isinstance(error, GoldenMissing) else Verdict.STALE
        return Unready(planned, verdict, str(error))

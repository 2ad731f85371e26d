"""Owns what an attempt needs before it can start: its golden and its workload, or the reason why it cannot."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcheck.harness.golden_store import DEFAULT_GOLDEN_DIR, golden_folders, load_golden
from graphcheck.harness.plan import PlannedAttempt
from graphcheck.harness.request import Plan, RunRequest
from graphcheck.harness.resolve import resolve
from graphcheck.schema.errors import GoldenError, GoldenMissing
from graphcheck.schema.golden import Golden
from graphcheck.schema.suite import Workload
from graphcheck.schema.verdicts import Verdict


@dataclass(frozen=True)
class Ready:
    """An attempt that can start."""

    planned: PlannedAttempt
    golden: Golden
    workload: Workload


@dataclass(frozen=True)
class Unready:
    """An attempt that gets its verdict without being started."""

    planned: PlannedAttempt
    verdict: Verdict
    reason: str


def prepare(plan: Plan, request: RunRequest) -> list[Ready | Unready]:
    """Looks up goldens, each once, and resolves suites. A golden that cannot be used costs its cells alone.

    Raises:
        SuiteError, ModelError: a suite does not fit its model; that is a wrong file, not a red cell.
    """
    folders = golden_folders(request.golden_dir or DEFAULT_GOLDEN_DIR, plan.loaded.path)
    known: dict[tuple[str, str, str], Golden | GoldenError] = {}
    prepared: list[Ready | Unready] = []
    for planned in plan.attempts:
        key = (planned.model.name, planned.suite.name, planned.dtype)
        if key not in known:
            known[key] = _golden(planned, folders)
        prepared.append(_prepare(planned, known[key], request.ignore_eos))
    return prepared


def _golden(planned: PlannedAttempt, folders: Sequence[Path]) -> Golden | GoldenError:
    try:
        return load_golden(planned.model, planned.suite, planned.dtype, folders)
    except GoldenError as error:
        return error


def _prepare(planned: PlannedAttempt, golden: Golden | GoldenError, ignore_eos: bool) -> Ready | Unready:
    try:
        if isinstance(golden, GoldenError):
            raise golden
        return Ready(planned, golden, resolve(planned.suite, planned.model, golden, ignore_eos=ignore_eos))
    except GoldenError as error:
        verdict = Verdict.MISSING if isinstance(error, GoldenMissing) else Verdict.STALE
        return Unready(planned, verdict, str(error))

"""Owns a run: the attempts of a matrix one after the other, every record on disk before the next thing happens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import graphcheck
from graphcheck.harness.devices import DeviceCheck, count_devices
from graphcheck.harness.environment import environment
from graphcheck.harness.golden_store import golden_name
from graphcheck.harness.interrupt import Interrupted
from graphcheck.harness.plan import PlannedAttempt
from graphcheck.harness.prepare import Ready, Unready, prepare
from graphcheck.harness.request import Plan, RunRequest, make_plan
from graphcheck.harness.run_attempt import run_attempt
from graphcheck.harness.run_folder import load_run
from graphcheck.harness.run_store import RunStore, new_run_folder, timestamp
from graphcheck.harness.summary import summarize
from graphcheck.harness.supervise import SYSTEM_CLOCK, Clock
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.golden import Golden
from graphcheck.schema.run import AttemptFacts, AttemptFinished, AttemptStarted, RunInfo
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.base import Target
from graphcheck.targets.registry import load_target


@dataclass(frozen=True)
class Surroundings:
    """What a run takes from the world around it."""

    load_target: Callable[[str], Target] = load_target
    count_devices: Callable[[str], int] = count_devices
    clock: Clock = SYSTEM_CLOCK


@dataclass(frozen=True)
class RunResult:
    """Where a run was recorded, and the exit code that it earned."""

    path: Path
    exit_code: ExitCode


OnRecord = Callable[[AttemptStarted | AttemptFinished], None]
"""Called with each record of the run right after it is on disk."""


def run_matrix(request: RunRequest, on_record: OnRecord, surroundings: Surroundings | None = None) -> RunResult:
    """Runs a matrix. Whatever goes wrong inside a cell is that cell's verdict; the others run.

    An interrupt ends the attempt at hand and closes the records; the result then carries the interrupt's exit code.

    Raises:
        UsageError: an option or a file that cannot be used; nothing has started then.
    """
    surroundings = surroundings or Surroundings()
    plan = make_plan(request, surroundings.load_target)
    prepared = prepare(plan, request)
    store = RunStore(new_run_folder(request.run_dir, datetime.now()))
    goldens = {_golden_key(one.planned): one.golden for one in prepared if isinstance(one, Ready)}
    info = _describe(request, plan, goldens)
    store.write_info(info)
    try:
        _run_all(prepared, goldens, plan, store, on_record, surroundings)
        code = summarize(info, load_run(store.path).attempts).exit_code
    except Interrupted as interrupt:
        code = interrupt.exit_code
    finally:
        plan.target.close()
    store.write_info(info.model_copy(update={"ended": timestamp(), "exit_code": int(code)}))
    return RunResult(store.path, code)


def _run_all(
    prepared: Sequence[Ready | Unready],
    goldens: dict[str, Golden],
    plan: Plan,
    store: RunStore,
    on_record: OnRecord,
    surroundings: Surroundings,
) -> None:
    def record(entry: AttemptStarted | AttemptFinished) -> None:
        store.append(entry)
        on_record(entry)

    for golden in goldens.values():
        store.add_golden(golden)
    devices = DeviceCheck(plan.capabilities, surroundings.count_devices)
    for one in prepared:
        started = _started(one)
        record(started)
        lack = devices.lack(one.planned.settings)
        if lack is not None:
            facts = AttemptFacts(skipped=lack)
            record(AttemptFinished(key=started.key, verdict=Verdict.SKIPPED, reason=lack, facts=facts, at=timestamp()))
        elif isinstance(one, Unready):
            record(AttemptFinished(key=started.key, verdict=one.verdict, reason=one.reason, at=timestamp()))
        else:
            record(run_attempt(one, started, plan, store, surroundings.clock))


def _started(prepared: Ready | Unready) -> AttemptStarted:
    planned = prepared.planned
    return AttemptStarted(
        key=planned.attempt.key,
        attempt=planned.attempt,
        model=planned.model.name,
        suite=planned.suite.name,
        dtype=planned.dtype,
        settings=planned.settings,
        workload=prepared.workload if isinstance(prepared, Ready) else None,
        at=timestamp(),
    )


def _describe(request: RunRequest, plan: Plan, goldens: dict[str, Golden]) -> RunInfo:
    return RunInfo(
        graphcheck=graphcheck.__version__,
        command=request.command,
        started=timestamp(),
        matrix_name=plan.loaded.name,
        matrix=plan.loaded.matrix,
        overrides=request.overrides(),
        fixes_off=request.fixes_off,
        goldens={key: golden.header.body_sha for key, golden in goldens.items()},
        environment=environment(),
        planned=tuple(planned.attempt.key for planned in plan.attempts),
    )


def _golden_key(planned: PlannedAttempt) -> str:
    return golden_name(planned.model.name, planned.suite.name, planned.dtype).with_suffix("").as_posix()

"""Owns a run of a matrix: what is recorded before, and after, its attempts."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import graphcheck
from graphcheck.harness.files.golden_store import golden_name
from graphcheck.harness.judging.findings import is_usable
from graphcheck.harness.judging.repeats import settle
from graphcheck.harness.judging.summary import summarize
from graphcheck.harness.machine.environment import environment
from graphcheck.harness.planning.plan import PlannedAttempt
from graphcheck.harness.planning.prepare import Ready, Unready, prepare
from graphcheck.harness.planning.request import Plan, RunRequest, make_plan
from graphcheck.harness.records.provenance import provenance
from graphcheck.harness.records.run_folder import load_run
from graphcheck.harness.records.run_store import RunStore, new_run_folder, timestamp
from graphcheck.harness.running.execute import Execution, Surroundings
from graphcheck.harness.running.interrupt import Interrupted
from graphcheck.harness.running.observe import UNOBSERVED, Observer
from graphcheck.schema.errors import GraphcheckError, RunFolderError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.golden import Golden
from graphcheck.schema.run import RunInfo


@dataclass(frozen=True)
class RunResult:
    """Where a run was recorded, and the exit code that it earned."""

    path: Path
    exit_code: ExitCode


def run_matrix(
    request: RunRequest, observer: Observer = UNOBSERVED, surroundings: Surroundings | None = None
) -> RunResult:
    """Runs a matrix. Whatever goes wrong inside a cell is that cell's verdict; the others run, unless `fail_fast`.

    An interrupt ends the attempt at hand and closes the records; the result then carries the interrupt's exit code.

    Raises:
        UsageError: an option or a file that cannot be used; nothing has started then.
    """
    surroundings = surroundings or Surroundings()
    plan = make_plan(request, surroundings.load_target, surroundings.count_devices)
    prepared = prepare(plan, request)
    info = describe_run(request, plan, prepared)
    store = RunStore(new_run_folder(request.run_dir, datetime.now()))
    cells = with_repeats(prepared, request.repeats)
    observer.planned([one.planned.attempt.key for attempts in cells for one in attempts])

    def run_all() -> ExitCode:
        execution = Execution(plan, store, observer, surroundings)
        for attempts in cells:
            speaks = settle([execution.run(one) for one in attempts])
            if request.fail_fast and not is_usable(speaks):
                break
        return summarize(info, load_run(store.path).attempts).exit_code

    return record_run(store, info, plan, prepared, run_all)


def record_run(
    store: RunStore,
    info: RunInfo,
    plan: Plan,
    prepared: Sequence[Ready | Unready],
    run_all: Callable[[], ExitCode],
) -> RunResult:
    """Runs `run_all` between the two versions of `run.json`; an interrupt's exit code is a result, not an error."""

    def close(code: ExitCode) -> None:
        store.write_info(info.model_copy(update={"ended": timestamp(), "exit_code": int(code)}))

    store.write_info(info)
    try:
        for golden in goldens_of(prepared).values():
            store.add_golden(golden)
        code = run_all()
    except Interrupted as interrupt:
        code = interrupt.exit_code
    except Exception as error:
        with suppress(RunFolderError):  # which may be what has just failed
            close(error.exit_code if isinstance(error, GraphcheckError) else ExitCode.INTERNAL)
        raise
    finally:
        plan.target.close()
    close(code)
    return RunResult(store.path, code)


def describe_run(request: RunRequest, plan: Plan, prepared: Sequence[Ready | Unready]) -> RunInfo:
    """What `run.json` says when a run starts.

    Raises:
        ProvenanceError: the source tree is not what was asked for.
    """
    return RunInfo(
        graphcheck=graphcheck.__version__,
        command=request.command,
        started=timestamp(),
        matrix_name=plan.loaded.name,
        matrix=plan.loaded.matrix,
        overrides=request.overrides(),
        fixes_off=request.fixes_off,
        goldens={key: golden.header.body_sha for key, golden in goldens_of(prepared).items()},
        environment=environment(),
        provenance=provenance(request.base, request.allow),
        planned=tuple(planned.attempt.key for planned in plan.attempts),
        repeats=request.repeats,
    )


def with_repeats(prepared: Sequence[Ready | Unready], repeats: int) -> list[list[Ready | Unready]]:
    """For each cell its attempts, in the order in which they run."""
    return [[_again(one, repeat) for repeat in range(repeats)] for one in prepared]


def _again(one: Ready | Unready, repeat: int) -> Ready | Unready:
    attempt = one.planned.attempt.model_copy(update={"repeat": repeat})
    return replace(one, planned=replace(one.planned, attempt=attempt))


def goldens_of(prepared: Sequence[Ready | Unready]) -> dict[str, Golden]:
    """MODEL/SUITE -> golden, of the attempts that have one."""
    return {_golden_key(one.planned): one.golden for one in prepared if isinstance(one, Ready)}


def _golden_key(planned: PlannedAttempt) -> str:
    return golden_name(planned.model.name, planned.suite.name, planned.dtype).with_suffix("").as_posix()

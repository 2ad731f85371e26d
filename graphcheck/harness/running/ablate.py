"""Owns an ablation: the baseline once, each fix off in the cells where it can act, everything back on at the end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from graphcheck.harness.judging.findings import RESTORED_REPEAT, ablation_exit_code, is_usable
from graphcheck.harness.planning.delays import parse_delays
from graphcheck.harness.planning.file_names import check_file_names
from graphcheck.harness.planning.prepare import Ready, Unready, prepare
from graphcheck.harness.planning.request import Plan, RunRequest, make_plan
from graphcheck.harness.records.run_folder import load_run
from graphcheck.harness.records.run_store import RunStore, new_run_folder
from graphcheck.harness.running.execute import Execution, Surroundings
from graphcheck.harness.running.observe import UNOBSERVED, Observer
from graphcheck.harness.running.run_matrix import RunResult, describe_run, record_run
from graphcheck.schema.ablation import Ablation
from graphcheck.schema.attempt import Attempt, Delay
from graphcheck.schema.capabilities import Capabilities, FixInfo
from graphcheck.schema.errors import UsageError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.verdicts import Verdict


@dataclass(frozen=True)
class AblateRequest:
    """The options of `graphcheck ablate`: what to run, which fixes (all if none is named), and how often."""

    run: RunRequest
    fixes: tuple[str, ...] = ()
    repeats: int = 1
    expect: tuple[str, ...] = ()
    delays: tuple[str, ...] = ()


@dataclass(frozen=True)
class AblationPlan:
    """A valid request: `baseline` runs first; `rest`, the trials and everything back on, only if it is green."""

    plan: Plan
    prepared: Sequence[Ready | Unready]
    ablation: Ablation
    baseline: Sequence[Ready | Unready]
    rest: Sequence[Ready | Unready]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(one.planned.attempt.key for one in (*self.baseline, *self.rest))


def plan_ablation(request: AblateRequest, surroundings: Surroundings) -> AblationPlan:
    """Every trial in order; starts none.

    Raises:
        UsageError: an option or a file that cannot be used.
    """
    plan = make_plan(request.run, surroundings.load_target, surroundings.count_devices)
    prepared = prepare(plan, request.run)
    ablation = _ablation(request, plan, prepared)
    trials = list(_trials(ablation, prepared))
    # Where nothing is switched off, nothing needs to be put back.
    rest = [*trials, *_intact(ablation, prepared, repeat=RESTORED_REPEAT)] if trials else []
    baseline = list(_intact(ablation, prepared, repeat=0))
    check_file_names(one.planned.attempt for one in (*baseline, *rest))
    return AblationPlan(plan, prepared, ablation, baseline, rest)


def ablate(
    request: AblateRequest, observer: Observer = UNOBSERVED, surroundings: Surroundings | None = None
) -> RunResult:
    """Runs an ablation and returns 0 if every fix is proven, 7 if not.

    A red baseline ends it at once with the baseline's own exit code: ablating a red engine proves nothing.

    Raises:
        UsageError: an option or a file that cannot be used; nothing has started then.
    """
    surroundings = surroundings or Surroundings()
    wanted = plan_ablation(request, surroundings)
    info = describe_run(request.run, wanted.plan, wanted.prepared)
    info = info.model_copy(update={"ablation": wanted.ablation, "planned": wanted.keys})
    store = RunStore(new_run_folder(request.run.run_dir, datetime.now()))
    observer.planned(wanted.keys)

    def run_all() -> ExitCode:
        execution = Execution(wanted.plan, store, observer, surroundings)
        if all(is_usable(execution.run(one)) for one in wanted.baseline):
            for one in wanted.rest:
                execution.run(one)
        run = load_run(store.path)
        return ablation_exit_code(run.info, run.attempts)

    return record_run(store, info, wanted.plan, wanted.prepared, run_all)


def _ablation(request: AblateRequest, plan: Plan, prepared: Sequence[Ready | Unready]) -> Ablation:
    fixes = _expected(request.expect, _fixes(request.fixes, plan.capabilities), named=bool(request.fixes))
    cells = {
        fix.name: tuple(
            one.planned.attempt.cell.name for one in prepared if fix.signature.acts_in(one.planned.settings)
        )
        for fix in fixes
    }
    return Ablation(
        fixes=fixes,
        cells=cells,
        num_selected_cells=len(prepared),
        repeats=request.repeats,
        expect=tuple(map(Verdict, request.expect)),
        delays=parse_delays(request.delays, plan.capabilities, plan.attempts),
    )


def _intact(ablation: Ablation, prepared: Sequence[Ready | Unready], repeat: int) -> Iterator[Ready | Unready]:
    """Every cell with every fix on; then delayed, because a delay that alone turns a cell red would prove nothing."""
    for delays in _injections(ablation):
        for one in prepared:
            yield _varied(one, delays=delays, repeat=repeat)


def _trials(ablation: Ablation, prepared: Sequence[Ready | Unready]) -> Iterator[Ready | Unready]:
    """Fix by fix, bare before delayed, in the cells where it can act."""
    for fix in ablation.fixes:
        here = [one for one in prepared if one.planned.attempt.cell.name in ablation.cells[fix.name]]
        for delays in _injections(ablation):
            for repeat in range(ablation.repeats):
                for one in here:
                    yield _varied(one, fixes_off=(fix.name,), delays=delays, repeat=repeat)


def _injections(ablation: Ablation) -> tuple[tuple[Delay, ...], ...]:
    return ((), ablation.delays) if ablation.delays else ((),)


def _varied(
    one: Ready | Unready, *, fixes_off: tuple[str, ...] = (), delays: tuple[Delay, ...], repeat: int
) -> Ready | Unready:
    attempt = Attempt(cell=one.planned.attempt.cell, fixes_off=fixes_off, delays=delays, repeat=repeat)
    return replace(one, planned=replace(one.planned, attempt=attempt))


def _fixes(names: Sequence[str], capabilities: Capabilities) -> tuple[FixInfo, ...]:
    target = f"target {capabilities.target}"
    if not capabilities.fixes:
        raise UsageError(target, "it has no fixes to switch off", "ablate another target")
    for name in names:
        if capabilities.fix(name) is None:
            choices = ", ".join(fix.name for fix in capabilities.fixes)
            raise UsageError(f"--fix {name}", f"{target} has no such fix", f"choose one of {choices}")
    return tuple(fix for fix in capabilities.fixes if not names or fix.name in names)


def _expected(expect: Sequence[str], fixes: Sequence[FixInfo], *, named: bool) -> tuple[FixInfo, ...]:
    """Those of the fixes whose signature has an expected verdict: without that a fix could never be proven.

    Raises:
        UsageError: no fix has a verdict of that name; or one that was `named` has none of those expected.
    """
    if not expect:
        return tuple(fixes)
    declared = {
        fix.name: {verdict for verdicts in fix.signature.shows.values() for verdict in verdicts} for fix in fixes
    }
    for name in expect:
        if not any(name in verdicts for verdicts in declared.values()):
            choices = ", ".join(sorted(set().union(*declared.values())))
            raise UsageError(f"--expect {name}", "not in the signature of any selected fix", f"choose one of {choices}")
    for name, verdicts in declared.items():
        if named and not verdicts & set(expect):
            rule = f"the signature of fix {name} is {' or '.join(sorted(verdicts))}"
            raise UsageError(f"--expect {', '.join(expect)}", rule, f"leave out --fix {name}")
    return tuple(fix for fix in fixes if declared[fix.name] & set(expect))

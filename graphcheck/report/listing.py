"""Owns `--list`: what a run or an ablation would do, attempt by attempt; nothing is started."""

from collections.abc import Sequence

from rich.console import Console

from graphcheck.harness.machine.devices import devices_needed
from graphcheck.harness.planning.prepare import Ready, Unready, prepare
from graphcheck.harness.planning.request import RunRequest, make_plan
from graphcheck.harness.records.provenance import provenance
from graphcheck.harness.running.ablate import AblateRequest, plan_ablation
from graphcheck.harness.running.execute import Surroundings
from graphcheck.harness.running.run_matrix import with_repeats
from graphcheck.report.formats import Format
from graphcheck.report.terminal import print_line, style_of
from graphcheck.report.words import counted
from graphcheck.schema.base import AxisValue, Record
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.registry import load_target

LIST_FORMAT = 1


class PlannedReport(Record):
    """One attempt to come. `devices` is kind -> number that its ranks would take if they share none.

    `verdict` is set, with its `reason`, if the attempt would get it without being started; `prompts` is None then.
    """

    key: str
    axes: dict[str, AxisValue]
    fixes_off: tuple[str, ...]
    delays: tuple[str, ...]
    model: str
    suite: str
    prompts: int | None
    devices: dict[str, int]
    verdict: Verdict | None
    reason: str


class PlanReport(Record):
    """What `--list --format json` prints: every attempt in order."""

    format: int = LIST_FORMAT
    planned: tuple[PlannedReport, ...]


def list_run(request: RunRequest, console: Console, format_: Format) -> None:
    """Prints what `run matrix` would run.

    Raises:
        UsageError: an option or a file that cannot be used.
    """
    # What a run would refuse, its list refuses too.
    provenance(request.base, request.allow)
    plan = make_plan(request, load_target)
    cells = with_repeats(prepare(plan, request), request.repeats)
    _print([_planned(one, plan.capabilities) for attempts in cells for one in attempts], console, format_)


def list_ablation(request: AblateRequest, console: Console, format_: Format) -> None:
    """Prints what `ablate` would run if the baseline is green.

    Raises:
        UsageError: an option or a file that cannot be used.
    """
    provenance(request.run.base, request.run.allow)
    wanted = plan_ablation(request, Surroundings())
    planned = [_planned(one, wanted.plan.capabilities) for one in (*wanted.baseline, *wanted.rest)]
    _print(planned, console, format_)


def _planned(one: Ready | Unready, capabilities: Capabilities) -> PlannedReport:
    planned = one.planned
    return PlannedReport(
        key=planned.attempt.key,
        axes=planned.attempt.cell.axes,
        fixes_off=planned.attempt.fixes_off,
        delays=tuple(delay.name for delay in planned.attempt.delays),
        model=planned.model.name,
        suite=planned.suite.name,
        prompts=len(one.workload.requests) if isinstance(one, Ready) else None,
        devices=devices_needed(capabilities, planned.settings),
        verdict=one.verdict if isinstance(one, Unready) else None,
        reason=one.reason if isinstance(one, Unready) else "",
    )


def _print(planned: Sequence[PlannedReport], console: Console, format_: Format) -> None:
    if format_ is Format.JSON:
        print_line(console, PlanReport(planned=tuple(planned)).model_dump_json(indent=2))
        return
    width = max(len(one.key) for one in planned)
    for one in planned:
        if one.verdict is not None:
            print_line(console, f"{one.key:{width}}  {one.verdict}: {one.reason}", style_of(one.verdict))
        else:
            needs = "".join(f", needs {number} {kind}" for kind, number in one.devices.items())
            prompts = counted(one.prompts or 0, "prompt")
            print_line(console, f"{one.key:{width}}  {one.model}, {one.suite}: {prompts}{needs}")
    print_line(console, f"{counted(len(planned), 'attempt')}, nothing was started")

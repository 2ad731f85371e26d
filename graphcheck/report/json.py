"""Owns a run as one JSON object for programs: its shape, and how it is filled from a run folder."""

from typing import Any

from rich.console import Console

from graphcheck.harness.judging.findings import ablation_exit_code, find, is_usable, red_baseline
from graphcheck.harness.records.run_folder import RecordedAttempt, Run
from graphcheck.harness.records.summary import num_exact, summarize
from graphcheck.report import words
from graphcheck.report.ablation import without_trials
from graphcheck.report.frames import least_replays
from graphcheck.report.golden import environment_notes
from graphcheck.report.rerun import rerun_command
from graphcheck.report.terminal import Terminal, print_line
from graphcheck.schema.ablation import FixFinding
from graphcheck.schema.base import AxisValue, Record
from graphcheck.schema.exit_codes import MEANING, ExitCode
from graphcheck.schema.run import RunInfo
from graphcheck.schema.verdicts import Outcome, Verdict

JSON_FORMAT = 1


class AttemptReport(Record):
    """One attempt. `verdict` is None if the run ended first.

    `rerun` is the one command that repeats it, None if it is green or skipped. `replays` are those of the rank with
    fewest, None if any rank could not tell; `seconds` wall time, None if nothing started. `exact` and `near_ties` count
    among the `prompts` that the attempt had to run.
    """

    key: str
    axes: dict[str, AxisValue]
    fixes_off: tuple[str, ...]
    verdict: Verdict | None
    green: bool
    declared_eager: bool = False
    reason: str = ""
    prompts: int
    exact: int = 0
    near_ties: int = 0
    replays: int | None = None
    seconds: float | None = None
    rerun: str | None = None


class Counts(Record):
    """What the cells add up to; of an ablation, its baseline's. `unfinished` counts cells that never started too."""

    cells: int
    green: int
    prompts: int
    exact: int
    near_ties: int
    skipped: int
    unwitnessed: int
    declared_eager: int
    unfinished: int


class AblationReport(Record):
    """What became of each fix; no `findings` if the baseline was red, for then nothing was switched off.

    `trials` are all that ran beside the baseline: delayed, with a fix off, and with everything back on.
    """

    red_baseline: bool
    proven: int
    findings: tuple[FixFinding, ...]
    trials: tuple[AttemptReport, ...]


class RunReport(Record):
    """The object. `not_started` are the keys of planned attempts that the run never came to."""

    format: int = JSON_FORMAT
    graphcheck: str
    run: str
    matrix: str
    target: str
    command: tuple[str, ...]
    started: str
    ended: str | None
    exit_code: int
    meaning: str
    backend: str
    counts: Counts
    cells: tuple[AttemptReport, ...]
    not_started: tuple[str, ...]
    ablation: AblationReport | None
    notes: tuple[str, ...]


def print_json(run: Run, console: Console) -> ExitCode:
    """Prints the object alone; the exit code in words goes to standard error."""
    report = json_report(run)
    print_line(console, report.model_dump_json(indent=2))
    code = ExitCode(report.exit_code)
    print_line(Terminal(stderr=True), f"exit {int(code)}: {MEANING[code]}")
    return code


def json_report(run: Run) -> RunReport:
    """The object of a run: a pure function of its folder."""
    info, intact = run.info, without_trials(run)
    summary = summarize(intact.info, intact.attempts)
    code = summary.exit_code if info.ablation is None else ablation_exit_code(info, run.attempts)
    begun = {attempt.started.key for attempt in run.every}
    return RunReport(
        graphcheck=info.graphcheck,
        run=str(run.path),
        matrix=info.matrix_name,
        target=info.matrix.target,
        command=info.command,
        started=info.started,
        ended=info.ended,
        exit_code=int(code),
        meaning=MEANING[code],
        backend=words.backend_phrase(summary),
        counts=Counts(
            cells=summary.num_cells,
            green=summary.num_green,
            prompts=summary.num_prompts,
            exact=summary.num_exact,
            near_ties=summary.num_near_ties,
            skipped=summary.num_skipped,
            unwitnessed=summary.num_unwitnessed,
            declared_eager=summary.num_declared_eager,
            unfinished=summary.num_unfinished,
        ),
        cells=tuple(_attempt(info, attempt) for attempt in intact.attempts),
        not_started=tuple(key for key in info.planned if key not in begun),
        ablation=_ablation(run, intact),
        notes=(*words.warnings(info.environment), *run.notes, *environment_notes(run)),
    )


def _ablation(run: Run, intact: Run) -> AblationReport | None:
    if run.info.ablation is None:
        return None
    is_red = bool(red_baseline(run.attempts))
    findings = () if is_red else find(run.info, run.attempts)
    baseline = {attempt.started.key for attempt in intact.attempts}
    return AblationReport(
        red_baseline=is_red,
        proven=sum(finding.finding.is_proof for finding in findings),
        findings=findings,
        trials=tuple(_attempt(run.info, a) for a in run.attempts if a.started.key not in baseline),
    )


def _attempt(info: RunInfo, attempt: RecordedAttempt) -> AttemptReport:
    started, finished = attempt.started, attempt.finished
    fields: dict[str, Any] = {
        "key": started.key,
        "axes": started.attempt.cell.axes,
        "fixes_off": started.attempt.fixes_off,
        "verdict": None,
        "green": False,
        "prompts": len(started.workload.requests) if started.workload is not None else 0,
        "rerun": None if finished is not None and is_usable(finished) else rerun_command(info, started.attempt),
    }
    if finished is not None:
        fields |= {
            "verdict": finished.verdict,
            "green": finished.verdict.is_green,
            "declared_eager": finished.declared_eager,
            "reason": finished.reason,
            "exact": num_exact(finished),
            "near_ties": sum(prompt.outcome is Outcome.NEAR_TIE for prompt in finished.prompts),
            "replays": least_replays(finished),
            "seconds": finished.facts.seconds.get("wall"),
        }
    return AttemptReport.model_validate(fields)

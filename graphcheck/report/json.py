"""Owns a run as one JSON object for programs: its shape, and how it is filled from a run folder."""

from typing import Any

from rich.console import Console

from graphcheck.harness.judging.findings import ablation_exit_code, find, is_usable, red_baseline
from graphcheck.harness.judging.summary import num_exact, summarize
from graphcheck.harness.records.run_folder import Run
from graphcheck.report import words
from graphcheck.report.ablation import without_trials
from graphcheck.report.explain import explain
from graphcheck.report.frames import least_replays, wall_seconds
from graphcheck.report.golden import environment_notes
from graphcheck.report.rerun import rerun_command
from graphcheck.report.terminal import Terminal, print_line
from graphcheck.schema.ablation import FixFinding
from graphcheck.schema.base import AxisValue, Record
from graphcheck.schema.exit_codes import MEANING, ExitCode
from graphcheck.schema.run import RecordedAttempt
from graphcheck.schema.verdicts import Verdict

JSON_FORMAT = 1


class AttemptReport(Record):
    """One attempt. `verdict` is None if the run ended first.

    `rerun` is the one command that repeats it, None if it is green or skipped. `replays` are those of the rank with
    fewest, None if any rank could not tell; `seconds` wall time of all its passes, None if nothing started. `exact` and
    `near_ties` count among the `prompts` that the attempt had to run. `explanation` is what a report says of it beside
    its `reason`; `folder` holds its logs and stacks, None if it has none.
    """

    key: str
    axes: dict[str, AxisValue]
    fixes_off: tuple[str, ...]
    verdict: Verdict | None
    green: bool
    declared_eager: bool = False
    reason: str = ""
    explanation: tuple[str, ...]
    folder: str | None
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
    """The object. `not_started` are the keys of planned attempts that the run never came to.

    `lacks_backend` is what `--require-backend` asked for in vain; `where` what the red cells have in common.
    """

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
    lacks_backend: str | None
    counts: Counts
    cells: tuple[AttemptReport, ...]
    not_started: tuple[str, ...]
    where: tuple[str, ...]
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
        lacks_backend=summary.lacks_backend,
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
        cells=tuple(_attempt(run, attempt) for attempt in intact.attempts),
        not_started=tuple(key for key in info.planned if key not in begun),
        where=tuple(words.where_lines(info, run.attempts)) if info.ablation is None else (),
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
        trials=tuple(_attempt(run, a) for a in run.attempts if a.started.key not in baseline),
    )


def _attempt(run: Run, attempt: RecordedAttempt) -> AttemptReport:
    started, finished = attempt.started, attempt.finished
    reason, folder = finished.reason if finished is not None else "", run.attempt_dir(started.key)
    fields: dict[str, Any] = {
        "key": started.key,
        "axes": started.attempt.cell.axes,
        "fixes_off": started.attempt.fixes_off,
        "verdict": None,
        "green": False,
        "reason": reason,
        "explanation": tuple(line for line in explain(attempt) if line != reason),
        "folder": str(folder) if folder.is_dir() else None,
        "prompts": len(started.workload.requests) if started.workload is not None else 0,
        "rerun": None if finished is not None and is_usable(finished) else rerun_command(run.info, started.attempt),
    }
    if finished is not None:
        fields |= {
            "verdict": finished.verdict,
            "green": finished.verdict.is_green,
            "declared_eager": finished.declared_eager,
            "exact": num_exact(finished),
            "near_ties": words.num_near_tied(finished),
            "replays": least_replays(finished),
            "seconds": wall_seconds(run, attempt),
        }
    return AttemptReport.model_validate(fields)

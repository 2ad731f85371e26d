"""Owns a run as JUnit XML for a CI server: a test case for each cell, for each fix, and for what no cell can tell."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree as ET

from rich.console import Console

from graphcheck.harness.judging.findings import RESTORED_REPEAT
from graphcheck.harness.records.run_folder import Run
from graphcheck.report import words
from graphcheck.report.ablation import without_trials
from graphcheck.report.characters import legal
from graphcheck.report.document import exit_code
from graphcheck.report.json import AblationReport, AttemptReport, RunReport, json_report
from graphcheck.report.provenance import describe_tree
from graphcheck.report.terminal import Terminal, print_line
from graphcheck.schema.ablation import FixFinding
from graphcheck.schema.exit_codes import MEANING, ExitCode
from graphcheck.schema.verdicts import Verdict

_FAILURES = (ExitCode.TOKENS, ExitCode.HANG, ExitCode.VACUOUS, ExitCode.UNPROVEN)
"""Codes of what was checked and does not hold. Any other but PASS is an error: it could not be checked."""

_NOT_RUN = "the run ended before this cell started"


@dataclass(frozen=True)
class Case:
    """One test case. `code` is what it adds to the run's exit code: PASS of what is skipped, too.

    `type` is a verdict, a finding or the name of a code; `text` what is shown below the message. `seconds` is None if
    nothing ran.
    """

    name: str
    code: ExitCode = ExitCode.PASS
    is_skipped: bool = False
    type: str = ""
    message: str = ""
    text: str = ""
    seconds: float | None = None

    @property
    def result(self) -> Literal["failure", "error", "skipped", "passed"]:
        if self.is_skipped:
            return "skipped"
        if self.code is ExitCode.PASS:
            return "passed"
        return "failure" if self.code in _FAILURES else "error"


def print_junit(run: Run, console: Console) -> ExitCode:
    """Prints the XML alone; the exit code in words goes to standard error."""
    console.out(junit(run), highlight=False)
    code = exit_code(run)
    print_line(Terminal(stderr=True), f"exit {int(code)}: {MEANING[code]}")
    return code


def junit(run: Run) -> str:
    """The XML: a pure function of the run folder; in ASCII, so that it is the same in whatever encoding it is printed.

    Some test case is a failure or an error if and only if the exit code is not 0.
    """
    report = json_report(run)
    found = _cases(run, report)
    totals = {
        "tests": str(len(found)),
        "failures": str(sum(case.result == "failure" for case in found)),
        "errors": str(sum(case.result == "error" for case in found)),
        "skipped": str(sum(case.result == "skipped" for case in found)),
        "time": f"{sum(case.seconds or 0 for case in found):.3f}",
    }
    root = ET.Element("testsuites", {"name": "graphcheck"} | totals)
    suite = _element(root, "testsuite", "", name=report.matrix, timestamp=report.started, **totals)
    properties = _element(suite, "properties")
    for name, value in _properties(run, report):
        _element(properties, "property", name=name, value=value)
    for case in found:
        _add(suite, f"graphcheck.{report.matrix}", case)
    if aside := [*report.where, *report.notes]:
        _element(suite, "system-out", "\n".join(aside))
    ET.indent(root)
    xml: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return xml.decode("ascii")


def _cases(run: Run, report: RunReport) -> list[Case]:
    found = [*_cells(run, report), *_fixes(report.ablation, run), *_required_backend(run, report)]
    code = ExitCode(report.exit_code)
    if code not in {ExitCode.PASS, *(case.code for case in found)}:
        # An interruption, records that contradict each other, cells that were only skipped: no other case tells.
        found.append(Case("run", code, type=code.name, message=MEANING[code], text="\n".join(report.notes)))
    return found


def _cells(run: Run, report: RunReport) -> Iterator[Case]:
    """One for each planned cell; of an ablation for its baseline, bare and delayed."""
    attempts = {attempt.started.key: attempt.started.attempt for attempt in run.attempts}
    trials = report.ablation.trials if report.ablation is not None else ()
    delayed = (one for one in trials if not one.fixes_off and attempts[one.key].repeat != RESTORED_REPEAT)
    for cell in (*report.cells, *delayed):
        # Whichever of its repeats speaks for a cell: a server follows a test by its name.
        yield _cell(attempts[cell.key].model_copy(update={"repeat": 0}).key, cell)
    stopped = words.fail_fast_notes(run.info, run.attempts)
    for key in without_trials(run).info.planned:
        if key not in report.not_started:
            continue
        if stopped:
            yield Case(key, is_skipped=True, message=stopped[0])
        else:
            yield Case(key, ExitCode.INCOMPLETE, type=words.UNFINISHED, message=_NOT_RUN, text=_NOT_RUN)


def _cell(name: str, cell: AttemptReport) -> Case:
    if cell.verdict is Verdict.SKIPPED:
        return Case(name, is_skipped=True, message=cell.reason)
    again = [f"again: {cell.rerun}"] if cell.rerun is not None else []
    lines = [*filter(None, [cell.reason]), *cell.explanation]
    if cell.green:
        lines.insert(0, _evidence(cell))
    code = ExitCode.INCOMPLETE if cell.verdict is None else cell.verdict.exit_code
    return Case(
        name,
        code,
        type=cell.verdict or words.UNFINISHED,
        message=next(iter(lines), ""),
        text="\n".join([*lines, *again]),
        seconds=cell.seconds,
    )


def _evidence(cell: AttemptReport) -> str:
    """`PASS 12/12 token-exact, 58 replays`."""
    verdict = words.EAGER_BY_DECLARATION if cell.declared_eager else cell.verdict
    replays = "? replays" if cell.replays is None else words.counted(cell.replays, "replay")
    return f"{verdict} {words.exactness(cell.exact, cell.prompts, cell.near_ties)} token-exact, {replays}"


def _fixes(ablation: AblationReport | None, run: Run) -> Iterator[Case]:
    if ablation is None or run.info.ablation is None:
        return
    if ablation.red_baseline:
        for fix in run.info.ablation.fixes:
            yield Case(f"fix {fix.name}", is_skipped=True, message=words.RED_BASELINE)
    for finding in ablation.findings:
        yield _fix(finding, [trial for trial in ablation.trials if trial.fixes_off == (finding.fix,)])


def _fix(finding: FixFinding, trials: Sequence[AttemptReport]) -> Case:
    """What came of switching a fix off, trial by trial; its time is theirs."""
    code = ExitCode.PASS if finding.finding.is_proof else ExitCode.UNPROVEN
    came = [f"{trial.key}  {trial.verdict or words.UNFINISHED}: {trial.reason}".rstrip(": ") for trial in trials]
    text = "\n".join([f"{finding.finding}: {finding.reason}", *came])
    seconds = [trial.seconds for trial in trials if trial.seconds is not None]
    total = sum(seconds) if seconds else None
    return Case(f"fix {finding.fix}", code, False, finding.finding, finding.reason, text, total)


def _required_backend(run: Run, report: RunReport) -> Iterator[Case]:
    required = run.info.overrides.get("require_backend")
    if required and report.lacks_backend is None:
        yield Case("required backend", text=report.backend)
    elif required:
        message = f"--require-backend {required}: no green cell replayed graphs on it alone ({report.backend})"
        yield Case("required backend", ExitCode.VACUOUS, False, Verdict.VACUOUS, message, message)


def _properties(run: Run, report: RunReport) -> Iterator[tuple[str, str]]:
    yield "graphcheck", report.graphcheck
    yield "source", describe_tree(run.info.provenance.source)
    yield "target", report.target
    yield "backend", report.backend
    yield "exit code", str(report.exit_code)
    yield "meaning", report.meaning
    yield "run", report.run
    if report.command:
        yield "command", shlex.join(report.command)


def _add(suite: ET.Element, classname: str, case: Case) -> None:
    time = {} if case.seconds is None else {"time": f"{case.seconds:.3f}"}
    element = _element(suite, "testcase", classname=classname, name=case.name, **time)
    if case.result == "skipped":
        _element(element, "skipped", message=case.message)
    elif case.result == "passed":
        _element(element, "system-out", case.text)
    else:
        _element(element, case.result, case.text, type=case.type, message=case.message)


def _element(parent: ET.Element, tag: str, text: str = "", **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, {name: legal(value) for name, value in attributes.items()})
    element.text = legal(text) or None
    return element

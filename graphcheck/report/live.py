"""Owns running something in front of its user: what follows it, the whole report at the end, what was kept."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from graphcheck.harness.golden.calibrate import calibrate
from graphcheck.harness.machine.environment import environment
from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.running.ablate import AblateRequest, ablate
from graphcheck.harness.running.observe import Observer
from graphcheck.harness.running.run_matrix import RunResult, run_matrix
from graphcheck.report import words
from graphcheck.report.artefacts import artefacts
from graphcheck.report.formats import Format
from graphcheck.report.golden import print_calibrated
from graphcheck.report.lines import Lines
from graphcheck.report.screen import Screen
from graphcheck.report.terminal import Terminal, print_line
from graphcheck.schema.exit_codes import ExitCode


def run_and_report(request: RunRequest, console: Terminal, format_: Format = Format.CONSOLE) -> ExitCode:
    """Runs a matrix, prints its report on `console` and returns the run's exit code.

    Raises:
        UsageError: an option or a file that cannot be used; nothing has started then.
    """
    return _report(lambda observer: run_matrix(request, observer), console, format_)


def ablate_and_report(request: AblateRequest, console: Terminal, format_: Format = Format.CONSOLE) -> ExitCode:
    """Runs an ablation, prints its report on `console` and returns its exit code.

    Raises:
        UsageError: an option or a file that cannot be used; nothing has started then.
    """
    return _report(lambda observer: ablate(request, observer), console, format_)


def calibrate_and_report(request: RunRequest, repeats: int, console: Terminal, *, writes: bool) -> None:
    """Calibrates a matrix's goldens, followed on standard error, and prints on `console` what was measured.

    Raises:
        GraphcheckError: see `calibrate`.
    """
    with _follower(Terminal(stderr=True), on_ctrl_c="stops") as observer:
        calibrated = calibrate(request, repeats, writes=writes, observer=observer)
    print_calibrated(calibrated, console)


def _report(run: Callable[[Observer], RunResult], console: Terminal, format_: Format) -> ExitCode:
    # Where a user follows the run: on the report's own console, or beside a report that is made to be taken away.
    narrator = console if format_ is Format.CONSOLE else Terminal(stderr=True)
    for warning in words.warnings(environment()):
        print_line(narrator, warning, "yellow")
    with _follower(narrator) as observer:
        result = run(observer)
    if result.exit_code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        # Before the report, which takes longer than whoever terminated the run may wait.
        for line in artefacts(result.path):
            print_line(narrator, line)
    return _show(result.path, console, format_)


@contextmanager
def _follower(console: Terminal, on_ctrl_c: str = "stops and reports") -> Iterator[Observer]:
    if console.can_redraw:
        with Screen(console, on_ctrl_c=on_ctrl_c) as screen:
            yield screen
    else:
        yield Lines(console)


def _show(path: Path, console: Terminal, format_: Format) -> ExitCode:
    # Tables are needed at the end alone; a run does not wait for pandas before its first cell.
    from graphcheck.report.show import show

    return show(path, console, format_)

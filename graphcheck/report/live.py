"""Owns a run as its user follows it: a line for each cell as it ends, then the whole report."""

import time
from pathlib import Path

from rich.console import Console

from graphcheck.harness.ablate import AblateRequest, ablate
from graphcheck.harness.environment import environment
from graphcheck.harness.request import RunRequest
from graphcheck.harness.run_matrix import run_matrix
from graphcheck.harness.summary import num_exact
from graphcheck.report import words
from graphcheck.report.formats import Format
from graphcheck.report.terminal import Terminal, print_line, style_of
from graphcheck.schema.attempt import FORCED_SUFFIX
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import AttemptFinished, AttemptStarted


def run_and_report(request: RunRequest, console: Console, format_: Format = Format.CONSOLE) -> ExitCode:
    """Runs a matrix, prints its report on `console` and returns the run's exit code.

    Raises:
        UsageError: an option or a file that cannot be used; nothing has started then.
    """
    narrator = _narrator(console, format_)
    _warn(narrator)
    result = run_matrix(request, lambda record: _follow(record, narrator))
    return _show(result.path, console, format_)


def ablate_and_report(request: AblateRequest, console: Console, format_: Format = Format.CONSOLE) -> ExitCode:
    """Runs an ablation, prints its report on `console` and returns its exit code.

    Raises:
        UsageError: an option or a file that cannot be used; nothing has started then.
    """
    narrator = _narrator(console, format_)
    _warn(narrator)
    progress = _Progress(narrator)
    result = ablate(request, progress.planned, progress.record)
    return _show(result.path, console, format_)


def _narrator(console: Console, format_: Format) -> Console:
    """Where a user follows the run: on the report's own console, or beside a report that is made to be taken away."""
    return console if format_ is Format.CONSOLE else Terminal(stderr=True)


def _show(path: Path, console: Console, format_: Format) -> ExitCode:
    # Tables are needed at the end alone; a run does not wait for pandas before its first cell.
    from graphcheck.report.show import show

    return show(path, console, format_)


class _Progress:
    """Numbers the trials and says how long the rest may take, from the mean of those so far."""

    def __init__(self, console: Console) -> None:
        self._console, self._total, self._done, self._began = console, 0, 0, time.monotonic()

    def planned(self, num_trials: int) -> None:
        self._total = num_trials

    def record(self, record: AttemptStarted | AttemptFinished) -> None:
        if not isinstance(record, AttemptFinished) or record.key.endswith(FORCED_SUFFIX):
            return
        self._done += 1
        left = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        line = f"[{self._done}/{self._total}] {_line(record)}"
        print_line(self._console, f"{line}, about {left:.0f} s left" if self._done < self._total else line)


def _warn(console: Console) -> None:
    for warning in words.warnings(environment()):
        print_line(console, warning, "yellow")


def _follow(record: AttemptStarted | AttemptFinished, console: Console) -> None:
    if isinstance(record, AttemptFinished) and not record.key.endswith(FORCED_SUFFIX):
        print_line(console, _line(record), style_of(record.verdict))


def _line(record: AttemptFinished) -> str:
    parts = [record.key, record.verdict]
    if record.prompts:
        parts.append(f"{num_exact(record)}/{len(record.prompts)}")
    if "wall" in record.facts.seconds:
        parts.append(f"{record.facts.seconds['wall']:.1f} s")
    return "  ".join(parts)

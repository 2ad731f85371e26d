"""Owns a run as its user follows it: a line for each cell as it ends, then the whole report."""

from rich.console import Console

from graphcheck.harness.environment import environment
from graphcheck.harness.request import RunRequest
from graphcheck.harness.run_folder import load_run
from graphcheck.harness.run_matrix import run_matrix
from graphcheck.harness.summary import num_exact
from graphcheck.report import words
from graphcheck.report.terminal import print_line, style_of
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import AttemptFinished, AttemptStarted


def run_and_report(request: RunRequest, console: Console) -> ExitCode:
    """Runs a matrix, prints its report and returns the run's exit code.

    Raises:
        UsageError: an option or a file that cannot be used; nothing has started then.
    """

    def on_record(record: AttemptStarted | AttemptFinished) -> None:
        if isinstance(record, AttemptFinished):
            print_line(console, _line(record), style_of(record.verdict))

    for warning in words.warnings(environment()):
        print_line(console, warning, "yellow")
    result = run_matrix(request, on_record)
    # Tables are needed at the end alone; a run does not wait for pandas before its first cell.
    from graphcheck.report.console import render

    return render(load_run(result.path), console)


def _line(record: AttemptFinished) -> str:
    parts = [record.key, record.verdict]
    if record.prompts:
        parts.append(f"{num_exact(record)}/{len(record.prompts)}")
    if "wall" in record.facts.seconds:
        parts.append(f"{record.facts.seconds['wall']:.1f} s")
    return "  ".join(parts)

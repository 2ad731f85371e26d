"""Owns showing a recorded run again, whichever kind of run it was and whichever way it is shown."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from graphcheck.harness.records.rejudge import contradictions
from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.report import words
from graphcheck.report.ablation import render_ablation
from graphcheck.report.advice import CONTRADICTED
from graphcheck.report.console import render
from graphcheck.report.formats import Format, load_format
from graphcheck.report.idle_fixes import idle_fix_notes
from graphcheck.report.provenance import provenance_notes
from graphcheck.schema.exit_codes import ExitCode


def show(path: Path, console: Console, format_: Format = Format.CONSOLE) -> ExitCode:
    """Prints the report of the run folder `path` and returns the run's exit code.

    A note says where a verdict, drawn again from the folder, is another than the recorded one, which is shown; the
    exit code is USAGE then. Others say where ranks ran different code, whether leaks are unknown, which fix was
    switched off where it cannot act, and what `--fail-fast` left out.

    Raises:
        RunFolderError: no run folder, or one that is damaged or of another version.
    """
    run = load_run(path)
    contradicted = tuple(contradictions(run))
    if contradicted:
        contradicted = (*contradicted, CONTRADICTED)
        # What does not bear out its own verdicts is no evidence of anything, whatever the run's own code was.
        run = replace(run, info=run.info.model_copy(update={"exit_code": int(ExitCode.USAGE)}))
    notes = (
        *run.notes,
        *contradicted,
        *provenance_notes(run),
        *words.memory_notes(run.attempts),
        *idle_fix_notes(run.info, run.attempts),
        *words.fail_fast_notes(run.info, run.attempts),
    )
    return load_format(format_)(replace(run, notes=notes), console)


def on_console(run: Run, console: Console) -> ExitCode:
    """The report for a terminal."""
    return (render if run.info.ablation is None else render_ablation)(run, console)

"""Owns showing a recorded run again, whichever kind of run it was."""

from pathlib import Path

from rich.console import Console

from graphcheck.harness.run_folder import load_run
from graphcheck.report.ablation import render_ablation
from graphcheck.report.console import render
from graphcheck.schema.exit_codes import ExitCode


def show(path: Path, console: Console) -> ExitCode:
    """Prints the report of the run folder `path` and returns the run's exit code.

    Raises:
        RunFolderError: no run folder, or one that is damaged or of another version.
    """
    run = load_run(path)
    return (render if run.info.ablation is None else render_ablation)(run, console)

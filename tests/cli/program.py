"""The program as these tests start it, and what they read back from its run folder."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import graphcheck
from graphcheck.harness.run_folder import Run, load_run
from graphcheck.schema.run import AttemptFinished

ROOT = Path(graphcheck.__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "160", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Done:
    """A finished run of the program."""

    code: int
    output: str
    run: Run

    @property
    def last_lines(self) -> tuple[str, str]:
        """The summary and the exit line."""
        summary, exit_line = self.output.strip().splitlines()[-2:]
        return summary, exit_line

    def attempts(self) -> dict[str, AttemptFinished]:
        """Cell name -> the finished attempt."""
        return {
            attempt.started.attempt.cell.name: attempt.finished
            for attempt in self.run.attempts
            if attempt.finished is not None
        }


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Starts `graphcheck ARGUMENTS` in `folder`, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "graphcheck", *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run_matrix(folder: Path, *arguments: str) -> Done:
    """`graphcheck run matrix ARGUMENTS` in `folder`, to its end."""
    process = start(folder, "run", "matrix", *arguments)
    return finish(process, folder)


def finish(process: subprocess.Popen[str], folder: Path) -> Done:
    """Waits for the program; its run is the newest under `folder`."""
    output, _ = process.communicate(timeout=240)
    newest = max((folder / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return Done(process.returncode, output, load_run(newest))


def descendants(process: int) -> set[int]:
    """Process ids below `process`, however deep."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found: set[int] = set()
    while True:
        more = {child for child, parent in parents.items() if parent in found | {process}} - found
        if not more:
            return found
        found |= more


def is_alive(process: int) -> bool:
    """True unless the process is gone or a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Polls until `condition` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)

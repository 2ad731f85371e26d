"""Owns the program as these tests run it, in a process of its own or in theirs, and what they read back."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import graphcheck
from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.schema.run import AttemptFinished

ROOT = Path(graphcheck.__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "160", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Done:
    """The program has ended; `folder` is the newest run folder, if there is one."""

    code: int
    output: str
    folder: Path | None

    @cached_property
    def run(self) -> Run:
        assert self.folder is not None, self.output
        return load_run(self.folder)

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


def finish(process: subprocess.Popen[str], folder: Path) -> Done:
    """Waits for the program."""
    output, _ = process.communicate(timeout=240)
    return done(process.returncode, output, folder)


def done(code: int, output: str, folder: Path) -> Done:
    """What has ended in `folder`."""
    return Done(code, output, max(folder.glob("runs/*"), key=lambda path: path.stat().st_mtime_ns, default=None))


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

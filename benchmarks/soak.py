"""Runs a matrix hundreds of times: undisturbed, to find false alarms, or with a process killed at a random moment.

    python benchmarks/soak.py clean --runs 200 --jobs 2 [...options of graphcheck run matrix]
    python benchmarks/soak.py kill  --runs 200 --jobs 2 [...options of graphcheck run matrix]

`--jobs` runs at once is the CPU load; the moment is anywhere in the time that one run takes alone. After each run
nothing of it may be alive, no shared memory may have its name, goldens must be as they were, and its `run.json`
readable. Prints what came as JSON; exit 1 if anything was wrong.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from graphcheck.harness.records.run_folder import load_run
from graphcheck.schema.errors import RunFolderError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.shipped import golden_dir

VICTIMS = ("rank", "fork server", "supervisor")
LONGEST_RUN_SECONDS = 300.0
LEAVE_SECONDS = 5.0
"""A rank looks for its supervisor ten times a second; this is for machines under load."""
AFTER_A_KILL = {
    "rank": (ExitCode.CRASH, ExitCode.PASS),
    "fork server": (ExitCode.CRASH, ExitCode.PASS),
    "supervisor": (-signal.SIGKILL, ExitCode.PASS),
}
"""Exit codes that are right; PASS where the victim had nothing left to do."""

Process = tuple[int, str]
"""A process id and the time at which it was born, so that a number used again is another process."""


@dataclass
class Outcome:
    """One run: its exit code, what was killed in it, and everything that was wrong."""

    code: int
    killed: str | None = None
    wrong: list[str] = field(default_factory=list)


def born(pid: int) -> str | None:
    """When a process started; None once it is gone or only waits to be collected."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return fields[19] if fields[0] != "Z" else None
    return None


def children(pid: int) -> list[int]:
    """Living children of every thread of a process."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text(encoding="utf-8").split())
    return found


def family(supervisor: int) -> Iterator[tuple[str, int]]:
    """What a run consists of now: the supervisor, its fork server, the ranks."""
    yield "supervisor", supervisor
    for child in children(supervisor):
        with suppress(OSError):
            if b"fork_server" in Path(f"/proc/{child}/cmdline").read_bytes():
                yield "fork server", child
                yield from (("rank", rank) for rank in children(child))


def one_run(number: int, within: float | None, options: list[str]) -> Outcome:
    """Runs the matrix once, in a folder of its own; something is killed `within` so many seconds, if that is given."""
    draw = random.Random(number)
    victim = draw.choice(VICTIMS) if within else None
    at = draw.uniform(0.0, within or 0.0)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "graphcheck", "run", "matrix", *options, "--run-dir", str(run_dir)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seen: dict[Process, str] = {}
        killed = None
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < LONGEST_RUN_SECONDS:
            members = list(family(process.pid))
            seen |= {(pid, when): kind for kind, pid in members if (when := born(pid)) is not None}
            if victim is not None and killed is None and time.monotonic() - began > at:
                chosen = [pid for kind, pid in members if kind == victim]
                if chosen:
                    with suppress(ProcessLookupError):
                        os.kill(draw.choice(chosen), signal.SIGKILL)
                    killed = victim
            time.sleep(0.02)
        if process.poll() is None:
            process.kill()
            return Outcome(process.wait(), killed, [f"still running after {LONGEST_RUN_SECONDS:g} s"])
        outcome = Outcome(process.returncode, killed)
        right = AFTER_A_KILL[killed] if killed else (ExitCode.PASS,)
        if outcome.code not in right:
            outcome.wrong.append(f"exit {outcome.code}: {_verdicts(run_dir)}")
        outcome.wrong += _left_alive(seen)
        outcome.wrong += _unreadable(run_dir)
        return outcome


def _left_alive(seen: dict[Process, str]) -> list[str]:
    deadline = time.monotonic() + LEAVE_SECONDS
    alive = seen
    while alive and time.monotonic() < deadline:
        alive = {(pid, when): kind for (pid, when), kind in alive.items() if born(pid) == when}
        time.sleep(0.05)
    return [f"still alive: {', '.join(alive.values())}"] if alive else []


def _unreadable(run_dir: Path) -> list[str]:
    """A run that was killed before it had a folder left nothing to read."""
    if not (run_dir / "run.json").exists():
        return []
    try:
        load_run(run_dir)
    except RunFolderError as error:
        return [str(error)]
    return []


def _verdicts(run_dir: Path) -> str:
    with suppress(RunFolderError):
        finished = [attempt.finished for attempt in load_run(run_dir).attempts if attempt.finished is not None]
        return "; ".join(f"{one.key} {one.verdict}: {one.reason}" for one in finished if not one.verdict.is_green)
    return "no run folder"


def goldens() -> str:
    """sha256 over every shipped golden."""
    digest = hashlib.sha256()
    for path in sorted(golden_dir().rglob("*")):
        digest.update(str(path).encode() + (path.read_bytes() if path.is_file() else b""))
    return digest.hexdigest()


def shared_memory() -> set[str]:
    """Named shared memory of graphcheck."""
    return {path.name for path in Path("/dev/shm").glob("graphcheck*")}


def main() -> int:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description="Run a matrix hundreds of times.")
    parser.add_argument("mode", choices=["clean", "kill"])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    arguments, options = parser.parse_known_args()
    before = goldens(), shared_memory()
    outcomes: list[Outcome] = []
    within = None
    if arguments.mode == "kill":
        began = time.monotonic()
        outcomes.append(one_run(0, None, options))
        within = time.monotonic() - began
    with ThreadPoolExecutor(arguments.jobs) as pool:
        futures = [pool.submit(one_run, number, within, options) for number in range(len(outcomes), arguments.runs)]
        for future in futures:
            outcomes.append(future.result())
            num_wrong = sum(bool(outcome.wrong) for outcome in outcomes)
            print(f"{len(outcomes)} of {arguments.runs} runs, {num_wrong} wrong", file=sys.stderr, flush=True)
    untouched = goldens() == before[0]
    named = sorted(shared_memory() - before[1])
    codes = Counter(f"{outcome.killed or 'nothing'} killed: exit {outcome.code}" for outcome in outcomes)
    wrong = [text for outcome in outcomes for text in outcome.wrong]
    figures = {
        "mode": arguments.mode,
        "runs": arguments.runs,
        "jobs": arguments.jobs,
        "cores": os.cpu_count(),
        "options": options,
        "killed_within_seconds": within and round(within, 1),
        "came": dict(sorted(codes.items())),
        "wrong": wrong,
        "goldens_untouched": untouched,
        "shared_memory_left": named,
    }
    print(json.dumps(figures, indent=1))
    return 0 if untouched and not named and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())

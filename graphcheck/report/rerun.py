"""Owns the one command that runs an attempt of a recorded run again, and nothing else."""

import shlex
from collections.abc import Iterator, Sequence

from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.run import RunInfo
from graphcheck.schema.verdicts import Verdict

_FLAGS_THAT_NEVER_MATTER = ("--fail-fast",)
_NEVER_MATTER = ("-k", "--run-dir", "--format")
_OF_TRIALS = ("--fix", "--expect", "--delay")


def rerun_command(info: RunInfo, attempt: Attempt) -> str | None:
    """The words of the run's own command, narrowed to the cell; None if a library call started the run.

    All that is not known to make no difference is kept, so that an option which comes later is kept too. A trial of an
    ablation becomes a run with its fix off; one with a delay stays an ablation, which alone can delay.
    """
    if not info.command:
        return None
    narrowed = ["-k", selection(attempt.cell)]
    if info.ablation is None:
        words = _without(info.command, _NEVER_MATTER)
    elif attempt.delays:
        words = _without(info.command, (*_NEVER_MATTER, "--fix") if attempt.fixes_off else _NEVER_MATTER)
        narrowed += [word for fix in attempt.fixes_off for word in ("--fix", fix)]
    else:
        words = ["graphcheck", "run", "matrix", *_without(info.command[2:], (*_NEVER_MATTER, *_OF_TRIALS))]
        narrowed += [word for fix in attempt.fixes_off for word in ("--disable-fix", fix)]
    return shlex.join([*words, *narrowed])


def rerun_lines(info: RunInfo, verdict: Verdict | None, attempts: Sequence[Attempt]) -> Iterator[str]:
    """For attempts that share a red verdict, or have none, a line each."""
    if verdict is not None and (verdict.is_green or verdict is Verdict.SKIPPED):
        return
    for attempt in attempts:
        if command := rerun_command(info, attempt):
            yield f"again: {command}"


def selection(cell: Cell) -> str:
    """The `-k` expression that selects this cell alone: `tp=2 and graph=on`."""
    return " and ".join(f"{axis}={value}" for axis, value in cell.axes.items())


def _without(command: Sequence[str], options: Sequence[str]) -> list[str]:
    """The words of a command but these options and their values, however they are joined."""
    joined = tuple(name if len(name) == 2 else f"{name}=" for name in options)
    kept = []
    words = iter(command)
    for word in words:
        if word in options:
            next(words, None)
        elif word not in _FLAGS_THAT_NEVER_MATTER and not word.startswith(joined):
            kept.append(word)
    return kept

"""Owns the commands that a report proposes, made of the words that started the run."""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.run import RunInfo
from graphcheck.schema.verdicts import Verdict

RUN_DIR = "--run-dir"
_OF_ONE_RUN = (RUN_DIR, "--format")
"""A second run needs another folder, and may be read in another way."""
_NEVER_MATTER = ("-k", *_OF_ONE_RUN)
_FLAGS_THAT_NEVER_MATTER = ("--fail-fast",)
_OF_TRIALS = ("--fix", "--expect", "--delay")
_OF_CELLS = ("--disable-fix", "--lanes")
_FLAGS_OF_CELLS = ("--ignore-eos", "--fail-fast")
"""Options that `run matrix` alone knows, as `_OF_TRIALS` are those that `ablate` alone knows."""
_OF_GOLDENS = ("--model", "--golden-dir", "-k")
_NOT_OF_GOLDENS = (
    *_OF_ONE_RUN,
    *_OF_TRIALS,
    *_OF_CELLS,
    "--set",
    "--repeats",
    "--require-backend",
    "--base",
    "--allow",
)
_FLAGS_NOT_OF_GOLDENS = (*_FLAGS_OF_CELLS, "--audit", "--share-gpus", "--allow-skipped")
"""Options that `golden regen` shares with a run; those that a run alone knows. Of its settings, dtype alone matters."""
OPTIONS = {
    "model": "--model",
    "ignore_eos": "--ignore-eos",
    "lanes": "--lanes",
    "allow_skipped": "--allow-skipped",
    "require_backend": "--require-backend",
    "select": "-k",
    "repeats": "--repeats",
    "share_gpus": "--share-gpus",
    "fail_fast": "--fail-fast",
}
"""Name in `run.json`'s overrides -> option; any other is a setting."""


def rerun_command(info: RunInfo, attempt: Attempt) -> str | None:
    """The words of the run's own command, narrowed to the cell; None if a library call started the run.

    All that is not known to make no difference is kept, so that an option which comes later is kept too. A trial of an
    ablation becomes a run with its fix off; one with a delay stays an ablation, which alone can delay.
    """
    if not info.command:
        return None
    narrowed = ["-k", selection(attempt.cell)]
    if info.ablation is None:
        words = _without(info.command, _NEVER_MATTER, _FLAGS_THAT_NEVER_MATTER)
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


def whole_command(info: RunInfo) -> list[str]:
    """The words that repeat the run into a folder of its own; of a library call, those that name its matrix."""
    kind = ["ablate"] if info.ablation is not None else ["run", "matrix"]
    return _without(info.command, _OF_ONE_RUN) or ["graphcheck", *kind, info.matrix_name]


def ablation_command(info: RunInfo) -> str:
    """Of a matrix run with fixes off: the ablation of these fixes in its cells."""
    words = _without(whole_command(info)[3:], _OF_CELLS, _FLAGS_OF_CELLS)
    return shlex.join(["graphcheck", "ablate", *words, *(word for fix in info.fixes_off for word in ("--fix", fix))])


def golden_command(info: RunInfo) -> str:
    """What makes the goldens that a run looks for."""
    words = _without(whole_command(info)[3 if info.ablation is None else 2 :], _NOT_OF_GOLDENS, _FLAGS_NOT_OF_GOLDENS)
    matrix = [] if _without(words, _OF_GOLDENS) else [info.matrix_name]
    dtype = info.overrides.get("dtype")
    setting = [] if dtype is None else ["--set", f"dtype={dtype}"]
    return shlex.join(["graphcheck", "golden", "regen", *matrix, *words, *setting])


def names_folder(info: RunInfo) -> bool:
    """True if the run's command names its folder, which a second run cannot have."""
    return len(_without(info.command, (RUN_DIR,))) < len(info.command)


def as_typed(overrides: Mapping[str, AxisValue | bool | None]) -> str:
    """The options that changed what a matrix says, as a command line gives them: `-k tp=2 --share-gpus`."""
    words: list[str] = []
    for name, value in overrides.items():
        if name in OPTIONS:
            words += [OPTIONS[name]] if value is True else [OPTIONS[name], str(value)]
        else:
            words += ["--audit"] if (name, value) == ("audit", "on") else ["--set", f"{name}={value}"]
    return shlex.join(words)


def selection(cell: Cell) -> str:
    """The `-k` expression that selects this cell alone: `tp=2 and graph=on`."""
    return " and ".join(f"{axis}={value}" for axis, value in cell.axes.items())


def _without(command: Sequence[str], options: Sequence[str], flags: Sequence[str] = ()) -> list[str]:
    """The words of a command but these options and their values, however they are joined, and these flags."""
    joined = tuple(name if len(name) == 2 else f"{name}=" for name in options)
    kept = []
    words = iter(command)
    for word in words:
        if word in options:
            next(words, None)
        elif word not in flags and not word.startswith(joined):
            kept.append(word)
    return kept

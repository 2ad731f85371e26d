"""Owns asking a short-lived child process for a text: it may fail or hang without taking the caller along."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

_LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True)
class Answer:
    """What the child printed, or why it gave no answer (`problem`, empty if it did)."""

    text: str = ""
    problem: str = ""


def ask(command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None) -> Answer:
    """Runs `command` to its end, for at most so many seconds, and returns its standard output."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=environment,
        )
    except OSError as failure:
        return Answer(problem=f"{command[0]} cannot be started ({failure.strerror})")
    try:
        text, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return Answer(problem=f"{command[0]} gave no answer within {seconds:g} s")
    except BaseException:
        _end(process)
        raise
    if process.returncode:
        last_line = (errors.strip().splitlines() or ["no output"])[-1]
        return Answer(problem=f"{command[0]} failed with status {process.returncode}: {last_line}")
    return Answer(text)


def _end(process: subprocess.Popen[str]) -> None:
    """Kills it. Inside a driver that hangs not even this does: then it is left behind."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_LAST_WORDS_SECONDS)

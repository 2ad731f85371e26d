"""Owns the process exit codes, their words and the rule that picks one of several."""

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """What the process tells CI. 1 comes only from a verdict; everything uncaught is INTERNAL."""

    PASS = 0
    TOKENS = 1
    USAGE = 2
    HANG = 3
    CRASH = 4
    VACUOUS = 5
    GOLDEN = 6
    UNPROVEN = 7
    INCOMPLETE = 8
    INTERNAL = 70
    INTERRUPTED = 130
    TERMINATED = 143


MEANING: dict[ExitCode, str] = {
    ExitCode.PASS: "pass",
    ExitCode.TOKENS: "tokens differ from the golden, or a cell disagrees with itself",
    ExitCode.USAGE: "wrong usage, or a file that cannot be used",
    ExitCode.HANG: "hang or time-out",
    ExitCode.CRASH: "crash, out of memory, request error, leak, audit breach, or logits that differ between ranks",
    ExitCode.VACUOUS: "nothing ran, or a cell did not take the path it claims",
    ExitCode.GOLDEN: "golden missing, stale or corrupt",
    ExitCode.UNPROVEN: "a fix is not proven",
    ExitCode.INCOMPLETE: "incomplete: cells were skipped or did not finish",
    ExitCode.INTERNAL: "internal error in graphcheck",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "terminated",
}

ENDING = frozenset({ExitCode.USAGE, ExitCode.INTERNAL, ExitCode.INTERRUPTED, ExitCode.TERMINATED})
"""Codes that end a run where they arise and never compete with a verdict's."""

# Worst first.
_WORST_FIRST = (
    ExitCode.HANG,
    ExitCode.CRASH,
    ExitCode.TOKENS,
    ExitCode.GOLDEN,
    ExitCode.VACUOUS,
    ExitCode.UNPROVEN,
    ExitCode.INCOMPLETE,
    ExitCode.PASS,
)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The code that stands for all of `codes`; VACUOUS when there is none, because nothing ran."""
    present = set(codes)
    return next((code for code in _WORST_FIRST if code in present), ExitCode.VACUOUS)

"""Owns whether a rank's stack moved between two looks, waiting left out."""

import re
from collections.abc import Iterable, Mapping

DECLARED_WAITS = ("wait_for_peers", "wait_for_collective", "wait_for_device")
"""Functions in which an engine waits for others by design: tag poll, collective wait, device sync."""


def moved(
    ranks: Iterable[int],
    first: Mapping[int, str],
    second: Mapping[int, str],
    declared_waits: Iterable[str] = DECLARED_WAITS,
) -> bool:
    """True if a rank of `ranks` did something but wait between two dumps. A rank without a stack did nothing."""
    waits = tuple(declared_waits)
    return any(above_wait(first.get(rank, ""), waits) != above_wait(second.get(rank, ""), waits) for rank in ranks)


def above_wait(stack: str, declared_waits: Iterable[str]) -> list[str]:
    """The frames of `stack` (innermost first) that called the outermost declared wait; all if there is none.

    The outermost, because a wait that polls leaves and enters the waits inside it while nothing moves.
    """
    frames = stack.splitlines()
    wait = re.compile(rf"\bin (?:{'|'.join(map(re.escape, declared_waits))})\b")
    outermost = max((number for number, frame in enumerate(frames) if wait.search(frame)), default=-1)
    return frames[outermost + 1 :]

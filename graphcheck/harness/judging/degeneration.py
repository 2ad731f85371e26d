"""Owns how an answer degenerates: into a loop, or into one token for ever. An honest repetition is neither.

What counts is compared with the golden's own: a stretch is honest as long as the golden repeats itself as far.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FOREVER = 8
"""A token that fills at least this many last places counts as repeated for ever."""

LONGEST_PERIOD = 8
LEAST_PERIODS = 3
LEAST_LOOP = 6
"""A tail is a loop if a period of at most LONGEST_PERIOD tokens fills it LEAST_PERIODS times and LEAST_LOOP tokens."""


@dataclass(frozen=True)
class Loop:
    """The end of an answer: `length` tokens, each the same as the one `period` tokens before it."""

    period: int
    length: int


def forever(ids: Sequence[int], right: Sequence[int]) -> int | None:
    """The token that an answer ends in for ever, farther than the right answer repeats any."""
    length = _stretch_at_end(ids, 1)
    return ids[-1] if length >= FOREVER and length > _longest_stretch(right, 1) else None


def loop_at_end(ids: Sequence[int], right: Sequence[int]) -> Loop | None:
    """The loop of least period that an answer ends in, farther than the right answer does anywhere."""
    for period in range(1, LONGEST_PERIOD + 1):
        length = _stretch_at_end(ids, period)
        if length >= max(LEAST_LOOP, LEAST_PERIODS * period):
            return Loop(period, length) if length > _longest_stretch(right, period) else None
    return None


def _stretch_at_end(ids: Sequence[int], period: int) -> int:
    """How many of the last tokens repeat with this period, the first period included."""
    length = min(period, len(ids))
    while length < len(ids) and ids[-1 - length] == ids[-1 - length + period]:
        length += 1
    return length


def _longest_stretch(ids: Sequence[int], period: int) -> int:
    longest = current = 0
    for number in range(period, len(ids)):
        current = current + 1 if ids[number] == ids[number - period] else 0
        longest = max(longest, current)
    return longest + period if longest else min(period, len(ids))

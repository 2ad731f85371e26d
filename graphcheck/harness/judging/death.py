"""Owns cause and consequence after a rank died: which of several errors and exits is to blame."""

import signal
from collections.abc import Sequence

from graphcheck.schema.events import ErrorEvent, ExitEvent

EARLY_EXIT = "EarlyExit"
"""Class name of the error that stands for a rank that left, however politely, before its work was done."""

SESSION_LOST = "SessionLost"
"""Class name of the error that stands for a session whose ranks the supervisor could no longer follow."""

_LOST_PEER = ("reset by peer", "closed by peer", "broken pipe", "connection refused", "connection closed")
"""What a transport says, in small letters, when the process at the other end is gone."""

Log = Sequence[ErrorEvent | ExitEvent]
"""Errors and exits of all ranks in order of arrival, which is reliable within a rank only."""


def with_consequences(log: Log) -> tuple[ErrorEvent, ...]:
    """The errors of `log`, in order, those that another rank's death explains marked as consequences.

    A peer may report its lost connection before the death itself is seen: an error that speaks of a lost peer
    follows from any other rank's death, an error of another kind only from a death before it.
    """
    return tuple(
        event.model_copy(update={"consequence": True}) if _follows(event, log[:position], log) else event
        for position, event in enumerate(log)
        if isinstance(event, ErrorEvent)
    )


def _follows(error: ErrorEvent, before: Log, log: Log) -> bool:
    if not _ends_rank(error):
        return False
    explains = log if _speaks_of_lost_peer(error) else before
    speakers = {event.rank for event in log if isinstance(event, ErrorEvent) and _ends_rank(event)}
    return any(_is_death(event, speakers) for event in explains if event.rank != error.rank)


def _is_death(event: ErrorEvent | ExitEvent, speakers: set[int]) -> bool:
    """True if the event can explain errors of other ranks.

    The exit of a rank that reported an error is that error's own end; and a lost connection explains nothing.
    """
    if isinstance(event, ExitEvent):
        return is_bad(event) and event.rank not in speakers
    return _ends_rank(event) and not event.consequence and not _speaks_of_lost_peer(event)


def _ends_rank(error: ErrorEvent) -> bool:
    return error.kind != "request"


def _speaks_of_lost_peer(error: ErrorEvent) -> bool:
    return any(words in error.message.lower() for words in _LOST_PEER)


def first_cause(kind: str, errors: Sequence[ErrorEvent]) -> ErrorEvent | None:
    """The first error of a kind ("request", "oom", "crash") that is not a consequence."""
    return next((error for error in errors if error.kind == kind and not error.consequence), None)


def first_bad_exit(exits: Sequence[ExitEvent], errors: Sequence[ErrorEvent]) -> ExitEvent | None:
    """The exit to blame where no error is: of a rank that could say nothing, by signal rather than by status."""
    speakers = {error.rank for error in errors if _ends_rank(error)}
    bad = [event for event in exits if is_bad(event)]
    return min(bad, key=lambda event: (event.rank in speakers, event.signal is None), default=None)


def is_bad(event: ExitEvent) -> bool:
    """True for a death by signal, or a status other than 0."""
    return event.signal is not None or event.status != 0


def describe_exit(event: ExitEvent) -> str:
    """`rank 1 was killed by SIGKILL (signal 9)`, or `rank 1 left with status 3`."""
    if event.signal is not None:
        return f"rank {event.rank} was killed by {_signal(event.signal)}"
    status = "a status that could not be read" if event.status is None else f"status {event.status}"
    return f"rank {event.rank} left with {status}"


def _signal(number: int) -> str:
    """Most real-time signals have no name."""
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def first_line(message: str) -> str:
    """An exception's message, cut to what fits a sentence: its first line that is not blank."""
    return next((line.strip() for line in message.splitlines() if line.strip()), "no message")

"""Owns what a run tells whoever follows it while it goes on; shows nothing itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphcheck.schema.events import Phase
from graphcheck.schema.run import AttemptFinished, AttemptStarted


@dataclass(frozen=True)
class Progress:
    """Where a running attempt is: phase and step of its rank furthest behind, and the tokens that rank 0 reported."""

    phase: Phase
    step: int
    num_tokens: int


class Observer:
    """Hears of everything and does nothing; a follower overrides what it wants to hear of.

    Called in the supervisor's own thread, between two looks at the ranks: what is slow here makes it look late.
    """

    def planned(self, keys: Sequence[str]) -> None:
        """The attempts to come, in order, before the first starts. Forced passes are not among them."""

    def started(self, record: AttemptStarted) -> None:
        """An attempt is on record; a forced pass too, while the attempt that it belongs to goes on."""

    def progress(self, progress: Progress) -> None:
        """Where the attempt that started last is; at every look at its ranks, whether or not anything moved."""

    def finished(self, record: AttemptFinished) -> None:
        """An attempt has its verdict."""


UNOBSERVED = Observer()

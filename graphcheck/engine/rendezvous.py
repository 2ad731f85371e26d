"""Owns the meeting of ranks before a gloo collective: who is there, and for the same one.

NCCL waits for ever when ranks enter different collectives; gloo aborts the process. So that a mismatch on a CPU
looks as it does on a GPU, every rank announces its next collective in its journal and enters only when all peers
have announced the same one. The announcements are also the story of a hang.
"""

import os
import time
from collections.abc import Callable

from graphcheck.engine.journal import JournalWriter

_SPINS = 200
_PAUSE_SECONDS = 50e-6


class Rendezvous:
    """One rank's side of the meetings of a group of `tp`."""

    def __init__(self, journal: JournalWriter, tp: int) -> None:
        self._journal = journal
        self._ranks = range(tp)

    def enter(self, kind: str, rows: int, nbytes: int, site: str) -> None:
        """Announces the next collective; returns once every rank has announced the same.

        If a peer announces another one, this never returns, as NCCL would not.
        """
        number = self._journal.announce(kind, rows, nbytes, site)
        if not self.all_here(number):
            with self._journal.waiting("wait_for_peers"):
                wait_for_peers(lambda: self.all_here(number))

    def all_here(self, number: int) -> bool:
        """True once every rank has announced collective `number`, and the same one."""
        return self._journal.memory.agree(number, self._ranks)


def wait_for_peers(all_here: Callable[[], bool]) -> None:
    """A declared wait: first yielding, then asleep between looks."""
    spins = 0
    while not all_here():
        spins += 1
        if spins < _SPINS:
            os.sched_yield()
        else:
            time.sleep(_PAUSE_SECONDS)

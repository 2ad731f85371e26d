"""Owns the meeting of ranks before a gloo collective: who is there, and for the same one.

NCCL waits for ever when ranks enter different collectives; gloo aborts the process. So that a mismatch on a CPU
looks as it does on a GPU, every rank announces its next collective in its journal and enters only when all peers
have announced the same one. The announcements are also the story of a hang.
"""

import os
import time

from graphcheck.engine.journal import JournalWriter, Tag

_SPINS = 200
_PAUSE_SECONDS = 50e-6


class Rendezvous:
    """One rank's side. `peers` are the other ranks of the group."""

    def __init__(self, journal: JournalWriter, rank: int, tp: int, site_names: list[str]) -> None:
        self._journal = journal
        self._rank = rank
        self._peers = [peer for peer in range(tp) if peer != rank]
        self._site_index = {name: index for index, name in enumerate(site_names)}
        journal.memory.write_sites(site_names)

    def enter(self, kind: str, rows: int, nbytes: int, site: str) -> None:
        """Announces the next collective; returns once every peer has announced the same.

        If a peer announces another one, this never returns, as NCCL would not.
        """
        number = self._journal.announce(kind, rows, nbytes, self._site_index[site])
        own = self._journal.memory.tag(self._rank, number)
        assert own is not None
        if not self.all_matched(own):
            with self._journal.waiting("wait_for_peers"):
                wait_for_peers(self, own)

    def _matched(self, peer: int, own: Tag) -> bool:
        # A peer may be one collective further already; its entry for this one is still in the ring.
        tag = self._journal.memory.tag(peer, own.number)
        return tag is not None and tag.matches(own)

    def all_matched(self, own: Tag) -> bool:
        """True once every peer has announced `own`."""
        return all(self._matched(peer, own) for peer in self._peers)


def wait_for_peers(rendezvous: Rendezvous, own: Tag) -> None:
    """A declared wait: first yielding, then asleep between looks."""
    spins = 0
    while not rendezvous.all_matched(own):
        spins += 1
        if spins < _SPINS:
            os.sched_yield()
        else:
            time.sleep(_PAUSE_SECONDS)

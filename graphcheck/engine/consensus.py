"""Owns the ranks' agreement on each step's tokens, over the journal: what would be a hang becomes an error."""

import hashlib
from collections.abc import Sequence

from graphcheck.engine.errors import ConsensusError
from graphcheck.engine.journal import JournalWriter
from graphcheck.engine.rendezvous import wait_for_peers
from graphcheck.engine.scheduler import Step


class Consensus:
    """One rank's side of the agreement of a group of `tp`. Costs a meeting of the ranks' hosts a step."""

    def __init__(self, journal: JournalWriter, rank: int, tp: int) -> None:
        self._journal, self._rank, self._ranks = journal, rank, range(tp)

    def agree(self, step: Step, ids: Sequence[int]) -> None:
        """Returns once every rank has ended the same step with the same tokens.

        Raises:
            ConsensusError: a rank has not. From here on batches part, and collectives with them.
        """
        mine = _digest(step, ids)
        number = self._journal.vote(mine)
        memory = self._journal.memory
        with self._journal.waiting("wait_for_peers"):
            wait_for_peers(lambda: all(memory.vote(rank, number) is not None for rank in self._ranks))
        others = [rank for rank in self._ranks if memory.vote(rank, number) != mine]
        if others:
            apart = f"rank{'s' * (len(others) > 1)} {', '.join(map(str, others))}"
            raise ConsensusError(
                f"{step.phase} step {step.number}: rank {self._rank} took {list(ids)}, {apart} took others; the ranks "
                "of a group must agree; compare their logits with logits = digest"
            )


def _digest(step: Step, ids: Sequence[int]) -> int:
    """What tells this step and its tokens from others, as a signed 64-bit word."""
    digest = hashlib.sha256(f"{step.phase} {step.number} {list(ids)}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)

"""Owns what ranks exchange: two verbs, launch and wait, staged through side buffers.

`launch(x)` starts a collective into a side buffer; `wait` copies the result into x. In between x holds this rank's
own partial, which is what a consumer reads that does not wait, as with an in-place NCCL all-reduce. It never reads
a shared result, or every rank would read the same stale values, agree, and look healthy.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist

from graphcheck.engine.graphs.base import GraphBackend
from graphcheck.engine.journal import JournalWriter
from graphcheck.engine.numerics import tree_sum
from graphcheck.engine.rendezvous import Rendezvous
from graphcheck.engine.sites import FixSites

LOGITS_SITE = "lm_head.gather"


@dataclass
class Ticket:
    """A collective in flight: its site, its side buffers, and how its result gets to its place."""

    site: str
    kind: str
    sent: torch.Tensor
    gathered: torch.Tensor  # [tp, *sent.shape]
    deliver: Callable[[], None]
    work: dist.Work | None = field(default=None)


class Collectives(Protocol):
    """What the model and the step need of the other ranks."""

    def reduce(self, x: torch.Tensor, site: str) -> torch.Tensor:
        """Sums a float32 partial [rows, hidden] over the ranks, in place."""
        ...

    def gather_logits(self, logits: torch.Tensor) -> None:
        """Fills the peers' blocks of logits [rows, vocab], of which this rank has written its own."""
        ...

    def end_step(self) -> None:
        """Joins whatever is still in flight."""
        ...

    @property
    def num_launched(self) -> int: ...


class SingleRank:
    """TP 1: the partial is the sum already, and both verbs have nothing to do."""

    num_launched = 0

    def reduce(self, x: torch.Tensor, site: str) -> torch.Tensor:
        return x

    def gather_logits(self, logits: torch.Tensor) -> None:
        return None

    def end_step(self) -> None:
        return None


class GlooCollectives:
    """TP 2 and more on a CPU. Partials are gathered and summed in the one fixed tree, so that every rank gets the
    same bits at every TP size."""

    def __init__(
        self,
        *,
        rank: int,
        tp: int,
        backend: GraphBackend,
        rendezvous: Rendezvous,
        journal: JournalWriter,
        sites: FixSites,
    ) -> None:
        self._rank, self._tp = rank, tp
        self._backend, self._rendezvous, self._journal, self._sites = backend, rendezvous, journal, sites
        self._in_flight: list[Ticket] = []
        self.num_launched = 0

    def reduce(self, x: torch.Tensor, site: str) -> torch.Tensor:
        """See Collectives.reduce."""
        self._join(self.launch(x, site))
        return x

    def gather_logits(self, logits: torch.Tensor) -> None:
        """See Collectives.gather_logits."""
        blocks = logits.unflatten(1, (self._tp, -1))  # [rows, tp, vocab / tp]
        own = blocks[:, self._rank].clone(memory_format=torch.contiguous_format)
        gathered = torch.empty((self._tp, *own.shape), dtype=own.dtype, device=own.device)
        ticket = Ticket(LOGITS_SITE, "gather", own, gathered, lambda: _copy(blocks, gathered.transpose(0, 1)))
        self._put_launch(ticket)
        self._join(ticket)

    def launch(self, x: torch.Tensor, site: str) -> Ticket:
        """Starts the sum of x [rows, hidden] over the ranks into a side buffer; x keeps this rank's partial."""
        gathered = torch.empty((self._tp, *x.shape), dtype=x.dtype, device=x.device)
        # A copy is sent, so that x may be used at once.
        ticket = Ticket(site, "reduce", x.clone(), gathered, lambda: _copy(x, tree_sum(gathered.unbind())))
        self._put_launch(ticket)
        return ticket

    def wait(self, ticket: Ticket) -> None:
        """Waits for the collective and copies its result to its place."""

        def finish() -> None:
            assert ticket.work is not None
            with self._journal.waiting("wait_for_collective"):
                wait_for_collective(ticket.work)
            ticket.work = None
            ticket.deliver()

        self._backend.call(finish, f"wait {ticket.site}")

    def end_step(self) -> None:
        """See Collectives.end_step. With every result joined where it is used, nothing is left to join here."""
        for ticket in self._in_flight:
            self.wait(ticket)
        self._in_flight.clear()

    def _join(self, ticket: Ticket) -> None:
        """The contract's visibility clause, and the one site of its fix."""
        if self._sites.on("allreduce-sync"):
            self.wait(ticket)
        else:
            self._in_flight.append(ticket)

    def _put_launch(self, ticket: Ticket) -> None:
        sent, flat = ticket.sent, ticket.gathered.view(-1)

        def start() -> None:
            self._rendezvous.enter(ticket.kind, sent.shape[0], sent.nbytes, ticket.site)
            ticket.work = _all_gather(flat, sent.view(-1))
            self.num_launched += 1

        self._backend.call(start, f"launch {ticket.site}")


def wait_for_collective(work: dist.Work) -> None:
    """A declared wait, by its own name so that a stack shows it."""
    work.wait()


def _copy(to: torch.Tensor, value: torch.Tensor) -> None:
    to.copy_(value)


def _all_gather(output: torch.Tensor, sent: torch.Tensor) -> dist.Work:
    # torch 2.13 renames the call and warns about the old name.
    gather = dist.all_gather_single if "all_gather_single" in dir(dist) else dist.all_gather_into_tensor
    return gather(output, sent, async_op=True)

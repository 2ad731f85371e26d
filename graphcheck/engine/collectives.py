"""Owns what ranks exchange: two verbs, launch and wait, staged through side buffers.

`launch(x)` starts a collective into a side buffer; `wait` copies the result into x. In between x holds this rank's
own partial, which is what a consumer reads that does not wait, as with an in-place NCCL all-reduce. It never reads
a shared result, or every rank would read the same stale values, agree, and look healthy.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch

from graphcheck.engine.graphs.base import LAUNCH, WAIT, GraphBackend
from graphcheck.engine.hooks import Hooks
from graphcheck.engine.numerics import tree_sum
from graphcheck.engine.site_names import DONE, LM_HEAD_GATHER
from graphcheck.engine.sites import FixSites
from graphcheck.engine.transport import Pending, Transport


@dataclass
class Ticket:
    """A collective in flight: its site, the tensor that it fills, how it starts, how its result gets there."""

    site: str
    kind: Literal["reduce", "gather"]
    target: torch.Tensor
    sent: torch.Tensor
    start: Callable[[], Pending]
    deliver: Callable[[], object]
    work: Pending | None = field(default=None)


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
    def num_launched(self) -> int:
        """Collectives that the host has started; those inside a CUDA graph count once, at capture."""
        ...


class SingleRank:
    """TP 1: the partial is the sum already, and both verbs have nothing to do. Sites are passed all the same."""

    num_launched = 0

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def reduce(self, x: torch.Tensor, site: str) -> torch.Tensor:
        self._hooks.site(site, x)
        self._hooks.site(site + DONE, x)
        return x

    def gather_logits(self, logits: torch.Tensor) -> None:
        self.reduce(logits, LM_HEAD_GATHER)

    def end_step(self) -> None:
        return None


class StagedCollectives:
    """TP 2 and more. With `fixed_tree`, partials are gathered and summed in the one tree, so that every rank gets the
    same bits at every TP size; without, they are summed by an all-reduce."""

    def __init__(
        self,
        *,
        rank: int,
        tp: int,
        fixed_tree: bool,
        backend: GraphBackend,
        transport: Transport,
        sites: FixSites,
        hooks: Hooks,
    ) -> None:
        self._rank, self._tp, self._fixed_tree = rank, tp, fixed_tree
        self._backend, self._transport, self._sites, self._hooks = backend, transport, sites, hooks
        self._in_flight: list[Ticket] = []
        self.num_launched = 0

    def reduce(self, x: torch.Tensor, site: str) -> torch.Tensor:
        """See Collectives.reduce."""
        self._join(self.launch(x, site))
        return x

    def launch(self, x: torch.Tensor, site: str) -> Ticket:
        """Starts the sum of x [rows, hidden] over the ranks into a side buffer; x keeps this rank's partial."""
        sent = x.clone()
        if self._fixed_tree:
            gathered = self._gathered(sent)
            ticket = Ticket(
                site,
                "reduce",
                x,
                sent,
                start=lambda: self._transport.all_gather(gathered.view(-1), sent.view(-1), site),
                deliver=lambda: x.copy_(tree_sum(gathered.unbind())),
            )
        else:
            ticket = Ticket(
                site,
                "reduce",
                x,
                sent,
                start=lambda: self._transport.all_reduce(sent, site),
                deliver=lambda: x.copy_(sent),
            )
        return self._launch(ticket)

    def gather_logits(self, logits: torch.Tensor) -> None:
        """See Collectives.gather_logits."""
        blocks = logits.unflatten(1, (self._tp, -1))  # [rows, tp, vocab / tp]
        sent = blocks[:, self._rank].clone(memory_format=torch.contiguous_format)
        gathered = self._gathered(sent)
        ticket = Ticket(
            LM_HEAD_GATHER,
            "gather",
            logits,
            sent,
            start=lambda: self._transport.all_gather(gathered.view(-1), sent.view(-1), LM_HEAD_GATHER),
            deliver=lambda: blocks.copy_(gathered.transpose(0, 1)),
        )
        self._join(self._launch(ticket))

    def wait(self, ticket: Ticket) -> None:
        """Waits for the collective and copies its result to its place."""

        def finish() -> None:
            assert ticket.work is not None
            self._transport.wait(ticket.work)
            ticket.work = None
            ticket.deliver()

        self._backend.call(finish, f"{WAIT} {ticket.site}")
        self._hooks.site(ticket.site + DONE, ticket.target)

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

    def _launch(self, ticket: Ticket) -> Ticket:
        sent = ticket.sent
        self._hooks.site(ticket.site, ticket.target)

        def start() -> None:
            self._transport.meet(ticket.kind, sent.shape[0], sent.nbytes, ticket.site)
            ticket.work = ticket.start()
            self.num_launched += 1

        self._backend.call(start, f"{LAUNCH} {ticket.site}")
        return ticket

    def _gathered(self, sent: torch.Tensor) -> torch.Tensor:
        return torch.empty((self._tp, *sent.shape), dtype=sent.dtype, device=sent.device)

"""Owns how bytes get from rank to rank: gloo on a CPU, NCCL between GPUs. Knows nothing of what they mean."""

from typing import Protocol

import torch
import torch.distributed as dist

from graphcheck.engine.journal import JournalWriter
from graphcheck.engine.rendezvous import Rendezvous

# torch 2.13 renames the call and warns about the old name.
_gather = dist.all_gather_single if "all_gather_single" in vars(dist) else dist.all_gather_into_tensor


class Pending(Protocol):
    """A collective in flight."""

    def wait(self) -> object:
        """After this, later work of the device sees the result."""
        ...


class Transport(Protocol):
    """Starts collectives. A result may be used only after `wait`.

    Sites name the collectives of a step; two of one name are never in flight together.
    """

    def meet(self, kind: str, rows: int, nbytes: int, site: str) -> None:
        """Comes first in every collective: whatever this transport needs to find its peers."""
        ...

    def all_gather(self, output: torch.Tensor, sent: torch.Tensor, site: str) -> Pending:
        """Starts gathering flat `sent` of every rank into flat `output`."""
        ...

    def all_reduce(self, buffer: torch.Tensor, site: str) -> Pending:
        """Starts summing contiguous float32 `buffer` over the ranks, in place."""
        ...

    def wait(self, pending: Pending) -> None:
        """After this, later work of the device sees the result."""
        ...


class GlooTransport:
    """CPU memory. Ranks meet over their journals before each collective, because gloo aborts on a mismatch."""

    def __init__(self, rendezvous: Rendezvous, journal: JournalWriter) -> None:
        self._rendezvous, self._journal = rendezvous, journal

    def meet(self, kind: str, rows: int, nbytes: int, site: str) -> None:
        self._rendezvous.enter(kind, rows, nbytes, site)

    def all_gather(self, output: torch.Tensor, sent: torch.Tensor, site: str) -> Pending:
        return _all_gather(output, sent)

    def all_reduce(self, buffer: torch.Tensor, site: str) -> Pending:
        return dist.all_reduce(buffer, async_op=True)

    def wait(self, pending: Pending) -> None:
        with self._journal.waiting("wait_for_collective"):
            wait_for_collective(pending)


class NcclTransport:
    """GPU memory. Collectives run on a stream of their own, and waiting joins that stream, not the host."""

    def meet(self, kind: str, rows: int, nbytes: int, site: str) -> None:
        return None

    def all_gather(self, output: torch.Tensor, sent: torch.Tensor, site: str) -> Pending:
        return _all_gather(output, sent)

    def all_reduce(self, buffer: torch.Tensor, site: str) -> Pending:
        return dist.all_reduce(buffer, async_op=True)

    def wait(self, pending: Pending) -> None:
        pending.wait()


def wait_for_collective(pending: Pending) -> None:
    """A declared wait, by its own name so that a stack shows it."""
    pending.wait()


def _all_gather(output: torch.Tensor, sent: torch.Tensor) -> Pending:
    return _gather(output, sent, async_op=True)

"""Owns collectives through symmetric memory: every rank reads its peers' buffers over NVLink, or on its own GPU.

Unlike NCCL it lets ranks share a GPU. API: torch.distributed._symmetric_memory.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from graphcheck.engine.site_names import DOWN_PROJ_REDUCE, LM_HEAD_GATHER, O_PROJ_REDUCE
from graphcheck.engine.transport import Pending

_SLOTS = tuple(pattern.rpartition("}")[2] for pattern in (O_PROJ_REDUCE, DOWN_PROJ_REDUCE, LM_HEAD_GATHER))
"""How the sites end that share a slot. A slot is written again only after a collective of another slot: a rank that
has met its peers there knows that they have read the slot, so that one barrier a collective is enough."""


class SymmetricTransport:
    """float32 in GPU memory, on a stream of its own, as NCCL does it; waiting joins that stream, not the host.

    A barrier does not know which collective it serves: ranks in different steps read each other's wrong rows, and
    hang only when one of them runs out of steps.
    """

    def __init__(self, device: torch.device, numel: int) -> None:
        """Allocates room for `numel` float32 values a slot; every rank of the default group must come here."""
        self._group = dist.distributed_c10d._get_default_group().group_name
        self._stream = torch.cuda.Stream(device)
        # Freed while a capture is open, symmetric memory aborts the process: all of it is held here for good.
        memory = [symm_mem.empty(numel, dtype=torch.float32, device=device) for _ in _SLOTS]
        self._handles = [symm_mem.rendezvous(slot, self._group) for slot in memory]
        self._own = memory
        self._views: list[Sequence[torch.Tensor]] = [
            [handle.get_buffer(peer, (numel,), torch.float32) for peer in range(handle.world_size)]
            for handle in self._handles
        ]

    def meet(self, kind: str, rows: int, nbytes: int, site: str) -> None:
        return None

    def all_gather(self, output: torch.Tensor, sent: torch.Tensor, site: str) -> Pending:
        """See Transport.all_gather."""
        slot, count = self._slot(site), sent.numel()
        with self._forked():
            self._own[slot][:count].copy_(sent)
            self._handles[slot].barrier()
            for block, peer in zip(output.chunk(len(self._views[slot])), self._views[slot], strict=True):
                block.copy_(peer[:count])
            return _Joined(self._stream.record_event())

    def all_reduce(self, buffer: torch.Tensor, site: str) -> Pending:
        """See Transport.all_reduce: one shot, summed in the order of the ranks."""
        own = self._own[self._slot(site)][: buffer.numel()]
        with self._forked():
            own.copy_(buffer.view(-1))
            total = torch.ops.symm_mem.one_shot_all_reduce(own, "sum", self._group)
            buffer.view(-1).copy_(total)
            return _Joined(self._stream.record_event())

    def wait(self, pending: Pending) -> None:
        pending.wait()

    def _forked(self) -> torch.cuda.StreamContext:
        self._stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._stream)

    def _slot(self, site: str) -> int:
        return next(slot for slot, ending in enumerate(_SLOTS) if site.endswith(ending))


class _Joined:
    """The end of a collective as an event of its stream."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def wait(self) -> None:
        torch.cuda.current_stream().wait_event(self._event)

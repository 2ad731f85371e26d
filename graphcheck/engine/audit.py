"""Owns the audit: proof before and after each replay that the contract holds, without looking at any token.

What attention may read and then mask is poisoned with a large finite value, what nobody may read with NaN, so that a
read that the contract forbids shows in the logits even where fresh memory would have hidden it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from graphcheck.engine.batch import HostBatch
from graphcheck.engine.blocks import DUMMY_PAGE
from graphcheck.engine.contract import INPUTS
from graphcheck.engine.graphs.base import LAUNCH, WAIT, Graph, GraphKey
from graphcheck.engine.graphs.trace import TracedOp, compare
from graphcheck.engine.kv_cache import KVCache
from graphcheck.engine.step_io import StepInputs

_MASKED_POISON = 1e4
_MAX_BREACHES = 20


@dataclass(frozen=True)
class Breach:
    """A broken clause of the contract: the buffer (or op), what was seen. `replay` counts from 1; 0 is capture."""

    clause: str
    buffer: str
    detail: str
    replay: int


class Auditor:
    """Watches one rank's runner. Breaches are kept in order, the first `_MAX_BREACHES` of each clause.

    One clause must not crowd out another: what froze at capture is found before any buffer is looked at.
    """

    def __init__(self, kv_cache: KVCache) -> None:
        self._kv_cache = kv_cache
        self._addresses: dict[str, int] = {}
        self._replay = 0
        self._expected_kv: tuple[torch.Tensor, torch.Tensor] | None = None
        self._written: torch.Tensor | None = None
        self._forbidden: torch.Tensor | None = None
        self.breaches: list[Breach] = []

    def captured(self, key: GraphKey, graph: Graph, twin: Graph, inputs: StepInputs) -> None:
        """Remembers where the captured buffers lie; checks what the capture shows by itself, and with its twin.

        By itself: no collective is used before it is waited for. Against `twin`, the same step captured with other
        contents: what differs was frozen by the host.
        """
        # Without a trace nothing would be found, and a broken graph would look clean.
        assert graph.trace is not None
        assert twin.trace is not None
        self._addresses = {spec.name: getattr(inputs, spec.name).data_ptr() for spec in INPUTS}
        for site in _unwaited(graph.trace):
            self._found("visibility", site, "what comes next in the graph does not wait for it")
        for frozen in compare(graph.trace, twin.trace):
            self._found("residency", frozen.op, f"FROZEN in {key}: {frozen}")

    def before_replay(self, graph: Graph, inputs: StepInputs, padded: HostBatch, live: int) -> None:
        """Checks identity, contents and tail of every input; poisons; remembers the KV cache.

        `padded` is what the buffers must hold, `live` how many of its rows are real lanes.
        """
        self._replay += 1
        for spec in INPUTS:
            buffer: torch.Tensor = getattr(inputs, spec.name)
            if buffer.data_ptr() != self._addresses[spec.name]:
                self._found("identity", spec.name, "lies at another address than at capture")
            wanted = torch.from_numpy(getattr(padded, spec.name)).to(buffer.device)
            for clause, rows in (("contents", slice(0, live)), ("tail", slice(live, padded.rows))):
                held = buffer[rows]
                if not torch.equal(held, wanted[rows]):
                    self._found(clause, spec.name, _first_difference(held, wanted[rows], rows.start))
        graph.poison()
        self._poison_kv(padded, live)

    def after_replay(self) -> None:
        """Checks that no key or value changed but those of the live lanes' own slots and of the dummy page.

        Takes the NaN back: an eager step may follow, and what is new in its pages is read and then masked.
        """
        assert self._expected_kv is not None
        assert self._written is not None
        assert self._forbidden is not None
        for name, now, before in zip(("keys", "values"), self._slots(), self._expected_kv, strict=True):
            same = (now == before) | (now.isnan() & before.isnan())
            changed = (~same).flatten(3).any(-1).any(0).any(0) & ~self._written
            if changed.any():
                slot = int(changed.nonzero()[0])
                self._found("tail", f"kv_cache.{name}", f"slot {slot} changed, which no live lane may write")
        for tensor in self._slots():
            tensor[:, :, self._forbidden] = _MASKED_POISON
        self._expected_kv = self._written = self._forbidden = None

    def _found(self, clause: str, buffer: str, detail: str) -> None:
        if sum(breach.clause == clause for breach in self.breaches) < _MAX_BREACHES:
            self.breaches.append(Breach(clause, buffer, detail, self._replay))

    def _poison_kv(self, padded: HostBatch, live: int) -> None:
        size, (keys, values) = self._kv_cache.page_size, self._slots()
        num_slots = keys.shape[2]
        readable = torch.zeros(num_slots, dtype=torch.bool)
        valid = torch.zeros(num_slots, dtype=torch.bool)
        readable[DUMMY_PAGE * size : (DUMMY_PAGE + 1) * size] = True
        for row in range(live):
            for index, page in enumerate(padded.block_tables[row]):
                if page == DUMMY_PAGE:
                    continue
                readable[page * size : (page + 1) * size] = True
                held = min(max(int(padded.positions[row]) - index * size, 0), size)
                valid[page * size : page * size + held] = True
        self._forbidden = (~readable).to(keys.device)
        for tensor in (keys, values):
            tensor[:, :, (readable & ~valid).to(tensor.device)] = _MASKED_POISON
            tensor[:, :, self._forbidden] = float("nan")
        self._expected_kv = keys.clone(), values.clone()
        written = torch.zeros(num_slots, dtype=torch.bool)
        written[DUMMY_PAGE * size : (DUMMY_PAGE + 1) * size] = True
        written[torch.from_numpy(padded.slot_mapping[:live]).long()] = True
        self._written = written.to(keys.device)

    def _slots(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values as [layers, shards, slots, kv_heads, head_dim], in place."""
        return self._kv_cache.keys.flatten(2, 3), self._kv_cache.values.flatten(2, 3)


def _unwaited(trace: list[TracedOp]) -> Iterator[str]:
    """Sites of the collectives whose launch something else follows than their wait."""
    ops = [op.op for op in trace]
    for place, op in enumerate(ops):
        verb, _, site = op.partition(" ")
        if verb == LAUNCH and f"{WAIT} {site}" not in ops[place : place + 2]:
            yield site


def _first_difference(held: torch.Tensor, wanted: torch.Tensor, first_lane: int) -> str:
    where = (held != wanted).nonzero()[0].tolist()
    index = tuple(where)
    return f"lane {first_lane + where[0]} holds {held[index].item()}, not {wanted[index].item()}"

"""Owns the two kinds of step as device work: decode (captured or eager) and prefill (eager)."""

from dataclasses import dataclass

import numpy as np
import torch

from graphcheck.engine.attention import DecodeAttention, PrefillAttention
from graphcheck.engine.batch import HostBatch
from graphcheck.engine.collectives import Collectives
from graphcheck.engine.decoder import DecoderModel
from graphcheck.engine.kv_cache import KVCache
from graphcheck.engine.sites import FixSites
from graphcheck.engine.step_io import StepInputs, StepOutputs


@dataclass
class HostMirror:
    """The host's copy of the running step's metadata. A captured step must not look at it."""

    batch: HostBatch


class StepProgram:
    """The device work of a step, the same code eager and captured: inputs and outputs are given, nothing is read
    on the host."""

    def __init__(
        self,
        *,
        model: DecoderModel,
        kv_cache: KVCache,
        collectives: Collectives,
        sites: FixSites,
        mirror: HostMirror,
        attention: DecodeAttention,
        vocab_size: int,
        own_vocab: range,
    ) -> None:
        self.model, self._kv_cache, self._collectives = model, kv_cache, collectives
        self._sites, self._mirror, self._attention = sites, mirror, attention
        self._vocab_size, self._own_vocab = vocab_size, own_vocab

    def decode(self, inputs: StepInputs, outputs: StepOutputs) -> None:
        """One token for every lane; writes all of `outputs`."""
        seq_lens, slot_mapping = self._resident_metadata(inputs)
        context = inputs.block_tables.shape[1] * self._kv_cache.page_size
        attention = self._attention(self._kv_cache, slot_mapping, seq_lens, inputs.block_tables, context)
        hidden = self.model.forward(inputs.token_ids, inputs.positions, attention)
        self._finish(hidden, inputs.force_mask, inputs.forced_ids, outputs)

    def prefill(
        self,
        token_ids: torch.Tensor,
        slot_mapping: torch.Tensor,
        force_mask: torch.Tensor,
        forced_ids: torch.Tensor,
        outputs: StepOutputs,
    ) -> None:
        """A whole prompt (int32 [tokens]) of one sequence; `outputs` has one row, for the token that follows it."""
        positions = torch.arange(len(token_ids), dtype=torch.int32, device=token_ids.device)
        attention = PrefillAttention(self._kv_cache, slot_mapping)
        hidden = self.model.forward(token_ids, positions, attention)
        self._finish(hidden[-1:], force_mask, forced_ids, outputs)

    def _resident_metadata(self, inputs: StepInputs) -> tuple[torch.Tensor, torch.Tensor]:
        """seq_lens and slot_mapping, int32 [lanes]: the contract's residency clause, and the one site of its fix."""
        if self._sites.on("device-metadata"):
            return inputs.seq_lens, inputs.slot_mapping
        batch, device = self._mirror.batch, inputs.seq_lens.device
        return _filled(batch.seq_lens, device), _filled(batch.slot_mapping, device)

    def _finish(
        self, hidden: torch.Tensor, force_mask: torch.Tensor, forced_ids: torch.Tensor, outputs: StepOutputs
    ) -> None:
        logits = outputs.logits
        own = logits[:, self._own_vocab.start : self._own_vocab.stop]
        own.copy_(torch.cat(self.model.logits(hidden), dim=-1))
        logits[:, self._vocab_size :].fill_(float("-inf"))
        self._collectives.gather_logits(logits)
        argmax = logits.argmax(-1).int()  # the lowest index wins a tie
        outputs.argmax_ids.copy_(argmax)
        outputs.next_ids.copy_(torch.where(force_mask, forced_ids, argmax))
        outputs.finite.copy_(logits[:, : self._vocab_size].isfinite().all(-1))
        self._collectives.end_step()


def _filled(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """int32 tensor of host values, written by fills, as a capture would allow it: each value becomes a constant."""
    return torch.cat([torch.full((1,), int(value), dtype=torch.int32, device=device) for value in values])

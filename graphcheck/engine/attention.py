"""Owns attention in its two phases: one query a lane over the KV cache, and one whole prompt over itself."""

import math
from typing import Protocol

import torch
from torch.nn import functional as F

from graphcheck.engine.decoder import Attention
from graphcheck.engine.kv_cache import KVCache


class DecodeAttention(Protocol):
    """Makes the attention of one decode step, one new token a lane.

    Every shape is fixed by the batch's rows and the context, every length read on the device, so that the same step
    can be captured. `slot_mapping` and `seq_lens` are int32 [lanes], `block_tables` int32 [lanes, blocks].
    """

    def __call__(
        self,
        kv_cache: KVCache,
        slot_mapping: torch.Tensor,
        seq_lens: torch.Tensor,
        block_tables: torch.Tensor,
        context: int,
    ) -> Attention: ...


class GatherAttention:
    """Decode attention in torch ops: gathers every lane's whole context, then masks what lies beyond its length."""

    def __init__(
        self,
        kv_cache: KVCache,
        slot_mapping: torch.Tensor,
        seq_lens: torch.Tensor,
        block_tables: torch.Tensor,
        context: int,
    ) -> None:
        self._kv_cache = kv_cache
        self._slot_mapping = slot_mapping  # int32 [lanes]
        self._block_tables = block_tables  # int32 [lanes, blocks]
        offsets = torch.arange(context, dtype=torch.int32, device=seq_lens.device)
        self._beyond = (offsets >= seq_lens.unsqueeze(1)).unsqueeze(1).unsqueeze(1)  # [lanes, 1, 1, context]

    def __call__(
        self, layer: int, shard: int, q_tnh: torch.Tensor, k_tnh: torch.Tensor, v_tnh: torch.Tensor
    ) -> torch.Tensor:
        self._kv_cache.write(layer, shard, self._slot_mapping, k_tnh, v_tnh)
        keys, values = self._kv_cache.gather(layer, shard, self._block_tables)  # [lanes, context, KV, D]
        keys, values = keys.to(q_tnh.dtype), values.to(q_tnh.dtype)
        lanes, heads, head_dim = q_tnh.shape
        q = q_tnh.unflatten(1, (keys.shape[2], -1))  # [lanes, KV, G, D]
        scores = torch.matmul(q, keys.permute(0, 2, 3, 1)) / math.sqrt(head_dim)  # [lanes, KV, G, context]
        weights = scores.float().masked_fill(self._beyond, float("-inf")).softmax(-1).to(q.dtype)
        return torch.matmul(weights, values.permute(0, 2, 1, 3)).reshape(lanes, heads, head_dim)


def attention(name: str) -> DecodeAttention:
    """Decode attention by the name that the setting `attention` has for it."""
    if name == "gather":
        return GatherAttention
    # Only here: a torch for CPUs comes without triton.
    from graphcheck.engine.kernels.decode_attention import TritonAttention

    return TritonAttention


class PrefillAttention:
    """A whole prompt of one sequence, causal, over itself; its keys and values go to the cache."""

    def __init__(self, kv_cache: KVCache, slot_mapping: torch.Tensor) -> None:
        self._kv_cache = kv_cache
        self._slot_mapping = slot_mapping  # int32 [tokens]

    def __call__(
        self, layer: int, shard: int, q_tnh: torch.Tensor, k_tnh: torch.Tensor, v_tnh: torch.Tensor
    ) -> torch.Tensor:
        self._kv_cache.write(layer, shard, self._slot_mapping, k_tnh, v_tnh)
        group = q_tnh.shape[1] // k_tnh.shape[1]
        k_tnh = k_tnh.repeat_interleave(group, dim=1)
        v_tnh = v_tnh.repeat_interleave(group, dim=1)
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q_tnh, k_tnh, v_tnh))  # [1, heads, tokens, D]
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(0).transpose(0, 1)

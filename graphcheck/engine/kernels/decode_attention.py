"""Owns decode attention as one kernel over the pages of the KV cache: it reads what a lane's length covers, no more.

Online softmax in float32 (Milakov and Gimelshein, arXiv:1805.02867), one program a lane and query head, positions in
ascending blocks. The kernel's configuration is constant, and no sum depends on other lanes or on the number of ranks.
"""

import math

import torch
import triton
import triton.language as tl

from graphcheck.engine.kv_cache import KVCache

BLOCK = 64
"""Positions that a program handles at once."""


@triton.jit
def _decode(
    queries,
    keys,
    values,
    block_tables,
    seq_lens,
    out,
    scale,
    num_blocks,
    NUM_HEADS: tl.constexpr,  # noqa: N803
    NUM_KV_HEADS: tl.constexpr,  # noqa: N803
    HEAD_DIM: tl.constexpr,  # noqa: N803
    PADDED_DIM: tl.constexpr,  # noqa: N803
    PAGE_SIZE: tl.constexpr,  # noqa: N803
    BLOCK_SIZE: tl.constexpr,  # noqa: N803
):
    lane, head = tl.program_id(0), tl.program_id(1)
    kv_head = head // (NUM_HEADS // NUM_KV_HEADS)
    dims = tl.arange(0, PADDED_DIM)
    is_dim = dims < HEAD_DIM
    row = (lane * NUM_HEADS + head) * HEAD_DIM
    query = tl.load(queries + row + dims, mask=is_dim, other=0.0).to(tl.float32) * scale
    length = tl.load(seq_lens + lane)
    largest = -float("inf")
    total = 0.0
    weighted = tl.zeros([PADDED_DIM], dtype=tl.float32)
    for start in range(0, length, BLOCK_SIZE):
        positions = start + tl.arange(0, BLOCK_SIZE)
        is_live = positions < length
        pages = tl.load(block_tables + lane * num_blocks + positions // PAGE_SIZE, mask=is_live, other=0)
        slots = pages.to(tl.int64) * PAGE_SIZE + positions % PAGE_SIZE
        at = (slots[:, None] * NUM_KV_HEADS + kv_head) * HEAD_DIM + dims[None, :]
        is_read = is_live[:, None] & is_dim[None, :]
        key = tl.load(keys + at, mask=is_read, other=0.0).to(tl.float32)
        value = tl.load(values + at, mask=is_read, other=0.0).to(tl.float32)
        scores = tl.where(is_live, tl.sum(query[None, :] * key, 1), -float("inf"))
        larger = tl.maximum(largest, tl.max(scores, 0))
        weights = tl.exp(scores - larger)
        shrink = tl.exp(largest - larger)
        total = total * shrink + tl.sum(weights, 0)
        weighted = weighted * shrink + tl.sum(weights[:, None] * value, 0)
        largest = larger
    tl.store(out + row + dims, (weighted / total).to(out.dtype.element_ty), mask=is_dim)


class TritonAttention:
    """See DecodeAttention: made for one step, called once a layer and shard."""

    def __init__(
        self,
        kv_cache: KVCache,
        slot_mapping: torch.Tensor,
        seq_lens: torch.Tensor,
        block_tables: torch.Tensor,
        context: int,
    ) -> None:
        self._kv_cache, self._slot_mapping = kv_cache, slot_mapping
        self._seq_lens, self._block_tables = seq_lens, block_tables

    def __call__(
        self, layer: int, shard: int, q_tnh: torch.Tensor, k_tnh: torch.Tensor, v_tnh: torch.Tensor
    ) -> torch.Tensor:
        """See Attention."""
        self._kv_cache.write(layer, shard, self._slot_mapping, k_tnh, v_tnh)
        q_tnh = q_tnh.contiguous()
        lanes, heads, head_dim = q_tnh.shape
        out = torch.empty_like(q_tnh)
        _decode[(lanes, heads)](
            q_tnh,
            self._kv_cache.keys[layer, shard],
            self._kv_cache.values[layer, shard],
            self._block_tables,
            self._seq_lens,
            out,
            1 / math.sqrt(head_dim),
            self._block_tables.shape[1],
            NUM_HEADS=heads,
            NUM_KV_HEADS=k_tnh.shape[1],
            HEAD_DIM=head_dim,
            PADDED_DIM=triton.next_power_of_2(head_dim),
            PAGE_SIZE=self._kv_cache.page_size,
            BLOCK_SIZE=BLOCK,
            num_warps=4,
            num_stages=2,
        )
        return out

"""Owns the order in which partial sums are added: one fixed tree, whatever the number of ranks.

Every layer and the LM head are computed as NUM_SHARDS virtual shards. A rank adds its own shards in the tree's
lower levels, the collective adds the ranks in the upper ones, so TP 1, 2 and 4 do the same additions.
"""

from collections.abc import Sequence

import torch


def tree_sum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Sum of a power of two of float32 tensors of one shape, as ((p0 + p1) + (p2 + p3))."""
    level = list(parts)
    while len(level) > 1:
        level = [left + right for left, right in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def shards_of(rank: int, tp: int, num_shards: int) -> range:
    """The virtual shards that `rank` of `tp` computes: a whole subtree of the sum."""
    per_rank = num_shards // tp
    return range(rank * per_rank, (rank + 1) * per_rank)


def padded_to(count: int, num_shards: int) -> int:
    """`count` rounded up to a multiple of `num_shards`; what is added is zero."""
    return -(-count // num_shards) * num_shards

"""Owns how a model is cut into shards, and the order in which their partial sums are added.

`invariant`: every layer and the LM head are computed as NUM_VIRTUAL_SHARDS shards, whatever the number of ranks. A
rank adds its own in the lower levels of one fixed tree, the collective adds the ranks in the upper ones: TP 1, 2 and 4
do the same additions. `fast`: one ordinary shard a rank, summed by an all-reduce in whatever order is fastest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

NUM_VIRTUAL_SHARDS = 4
"""A power of two that every TP size divides."""


def tree_sum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Sum of a power of two of float32 tensors of one shape, as ((p0 + p1) + (p2 + p3))."""
    level = list(parts)
    while len(level) > 1:
        level = [left + right for left, right in zip(level[::2], level[1::2], strict=True)]
    return level[0]


@dataclass(frozen=True)
class Sharding:
    """Which of `num_shards` equal, zero-padded blocks of every split dimension one of `tp` ranks holds."""

    num_shards: int
    rank: int
    tp: int

    @property
    def own(self) -> range:
        """This rank's shards: a whole subtree of the sum."""
        per_rank = self.num_shards // self.tp
        return range(self.rank * per_rank, (self.rank + 1) * per_rank)

    def per_shard(self, count: int) -> int:
        """Size of one shard of a dimension of `count`, padding included."""
        return -(-count // self.num_shards)

    def padded(self, count: int) -> int:
        """`count` rounded up so that it divides into equal shards; what is added is zero."""
        return self.per_shard(count) * self.num_shards

    def block(self, tensor: torch.Tensor, dim: int, shard: int) -> torch.Tensor:
        """The `shard`-th block of `tensor` along `dim`, zero-padded to the common size."""
        size = self.per_shard(tensor.shape[dim])
        start = min(shard * size, tensor.shape[dim])
        block = tensor.narrow(dim, start, min(size, tensor.shape[dim] - start))
        if block.shape[dim] == size:
            return block
        padding = list(tensor.shape)
        padding[dim] = size - block.shape[dim]
        return torch.cat([block, block.new_zeros(padding)], dim)

"""Owns the Llama forward pass over virtual shards. Knows nothing of ranks, graphs or the KV layout."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn import functional as F

from graphcheck.engine.checkpoint import LayerWeights, LlamaWeights
from graphcheck.engine.config import NUM_SHARDS
from graphcheck.engine.hooks import Hooks
from graphcheck.engine.layers import RotaryEmbedding, rms_norm, rotate, swiglu
from graphcheck.engine.llama_config import LlamaConfig
from graphcheck.engine.numerics import padded_to, tree_sum


class Attention(Protocol):
    """Writes the step's keys and values, then attends; bound to one step's metadata.

    `layer` counts from 0, `shard` among the rank's own. q [tokens, heads, head_dim], k and v
    [tokens, kv_heads, head_dim], heads those of one shard; returns the shape of q.
    """

    def __call__(
        self, layer: int, shard: int, q_tnh: torch.Tensor, k_tnh: torch.Tensor, v_tnh: torch.Tensor
    ) -> torch.Tensor: ...


Reduce = Callable[[torch.Tensor, str], torch.Tensor]
"""Sums a float32 partial [tokens, hidden] over ranks, in place, and returns it; named by its site."""


class LlamaModel:
    """Weights of one rank's virtual shards, and the forward pass over them.

    `reduce` sums partials over the ranks. Hidden states are never split: every rank holds all of them.
    """

    def __init__(
        self,
        config: LlamaConfig,
        weights: LlamaWeights,
        rotary: RotaryEmbedding,
        reduce: Reduce,
        hooks: Hooks,
    ) -> None:
        self._config, self._weights, self._rotary = config, weights, rotary
        self._reduce, self._hooks = reduce, hooks
        self._kv_heads = padded_to(config.num_kv_heads, NUM_SHARDS) // NUM_SHARDS
        self._heads = self._kv_heads * config.group_size

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, attention: Attention) -> torch.Tensor:
        """Hidden states [tokens, hidden] after the final norm, for int32 token_ids and positions [tokens]."""
        x = F.embedding(token_ids, self._weights.embedding)
        cos, sin = self._rotary.at(positions, x.dtype)
        for index, layer in enumerate(self._weights.layers):
            self._hooks.site(f"layers.{index}", x)
            x = x + self._attention_block(index, layer, x, cos, sin, attention)
            x = x + self._mlp_block(index, layer, x)
        return rms_norm(x, self._weights.final_norm, self._config.rms_norm_eps)

    def logits(self, hidden: torch.Tensor) -> list[torch.Tensor]:
        """One float32 block [tokens, vocab / shards] of logits for each of the rank's virtual shards."""
        return [F.linear(hidden, head).float() for head in self._weights.head]

    def _attention_block(
        self,
        index: int,
        layer: LayerWeights,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        attention: Attention,
    ) -> torch.Tensor:
        hidden = rms_norm(x, layer.input_norm, self._config.rms_norm_eps)
        sizes = [self._heads, self._kv_heads, self._kv_heads]
        partials = []
        for shard, weights in enumerate(layer.shards):
            qkv_tnh = F.linear(hidden, weights.qkv).unflatten(-1, (-1, self._config.head_dim))
            q_tnh, k_tnh, v_tnh = qkv_tnh.split(sizes, dim=1)
            q_tnh, k_tnh = rotate(q_tnh, cos, sin), rotate(k_tnh, cos, sin)
            attended = attention(index, shard, q_tnh, k_tnh, v_tnh)
            partials.append(F.linear(attended.flatten(1), weights.o).float())
        return self._sum(partials, f"layers.{index}.o_proj.reduce").to(x.dtype)

    def _mlp_block(self, index: int, layer: LayerWeights, x: torch.Tensor) -> torch.Tensor:
        hidden = rms_norm(x, layer.post_attention_norm, self._config.rms_norm_eps)
        partials = [
            F.linear(swiglu(F.linear(hidden, weights.gate_up)), weights.down).float() for weights in layer.shards
        ]
        return self._sum(partials, f"layers.{index}.down_proj.reduce").to(x.dtype)

    def _sum(self, partials: list[torch.Tensor], site: str) -> torch.Tensor:
        partial = tree_sum(partials)
        self._hooks.site(site, partial)
        total = self._reduce(partial, site)
        self._hooks.site(f"{site}.done", total)
        return total


def reduce_sites(num_layers: int) -> list[str]:
    """Names of the model's reduces, in the order in which a step meets them."""
    return [f"layers.{index}.{part}.reduce" for index in range(num_layers) for part in ("o_proj", "down_proj")]

"""Owns the forward pass of a decoder over one rank's shards. Knows nothing of ranks, graphs or the KV layout."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn import functional as F

from graphcheck.engine.architecture import DecoderConfig
from graphcheck.engine.checkpoint import DecoderWeights, LayerWeights
from graphcheck.engine.hooks import Hooks
from graphcheck.engine.layers import rms_norm, swiglu
from graphcheck.engine.numerics import Sharding, tree_sum
from graphcheck.engine.rope import RotaryEmbedding, rotate
from graphcheck.engine.site_names import DOWN_PROJ_REDUCE, LAYER, O_PROJ_REDUCE


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


class DecoderModel:
    """Weights of one rank's shards, and the forward pass over them.

    `reduce` sums partials over the ranks. Hidden states are never split: every rank holds all of them.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        sharding: Sharding,
        rotary: RotaryEmbedding,
        reduce: Reduce,
        hooks: Hooks,
    ) -> None:
        self._config, self._weights, self._rotary = config, weights, rotary
        self._reduce, self._hooks = reduce, hooks
        kv_heads = sharding.per_shard(config.num_kv_heads)
        self._qkv_heads = [kv_heads * config.group_size, kv_heads, kv_heads]

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, attention: Attention) -> torch.Tensor:
        """Hidden states [tokens, hidden] after the final norm, for int32 token_ids and positions [tokens]."""
        x = F.embedding(token_ids, self._weights.embedding)
        cos, sin = self._rotary.at(positions, x.dtype)
        for index, layer in enumerate(self._weights.layers):
            self._hooks.site(LAYER.format(layer=index), x)
            x = x + self._attention_block(index, layer, x, cos, sin, attention)
            x = x + self._mlp_block(index, layer, x)
        return rms_norm(x, self._weights.final_norm, self._config.rms_norm_eps)

    def logits(self, hidden: torch.Tensor) -> list[torch.Tensor]:
        """One float32 block [tokens, vocab / shards] of logits for each of the rank's shards."""
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
        partials = []
        for shard, weights in enumerate(layer.shards):
            qkv_tnh = F.linear(hidden, weights.qkv, weights.qkv_bias).unflatten(-1, (-1, self._config.head_dim))
            q_tnh, k_tnh, v_tnh = qkv_tnh.split(self._qkv_heads, dim=1)
            if layer.qk_norm is not None:
                q_tnh = rms_norm(q_tnh, layer.qk_norm.q, self._config.rms_norm_eps)
                k_tnh = rms_norm(k_tnh, layer.qk_norm.k, self._config.rms_norm_eps)
            q_tnh, k_tnh = rotate(q_tnh, cos, sin), rotate(k_tnh, cos, sin)
            attended = attention(index, shard, q_tnh, k_tnh, v_tnh)
            partials.append(F.linear(attended.flatten(1), weights.o).float())
        return self._reduce(tree_sum(partials), O_PROJ_REDUCE.format(layer=index)).to(x.dtype)

    def _mlp_block(self, index: int, layer: LayerWeights, x: torch.Tensor) -> torch.Tensor:
        hidden = rms_norm(x, layer.post_attention_norm, self._config.rms_norm_eps)
        partials = [
            F.linear(swiglu(F.linear(hidden, weights.gate_up)), weights.down).float() for weights in layer.shards
        ]
        return self._reduce(tree_sum(partials), DOWN_PROJ_REDUCE.format(layer=index)).to(x.dtype)

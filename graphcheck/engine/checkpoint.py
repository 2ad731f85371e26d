"""Owns reading a Hugging Face checkpoint folder of safetensors into the shards of one rank."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from graphcheck.engine.architecture import DecoderConfig
from graphcheck.engine.errors import CheckpointError
from graphcheck.engine.numerics import Sharding

Place = Callable[[torch.Tensor], torch.Tensor]
"""Brings a tensor to the rank's device and dtype, contiguous."""


@dataclass(frozen=True)
class LayerShard:
    """Weights of one shard of one layer, each contiguous and of the same shape in every shard.

    qkv [(heads + 2 * kv_heads) * head_dim, hidden], qkv_bias [(heads + 2 * kv_heads) * head_dim],
    o [hidden, heads * head_dim], gate_up [2 * ffn, hidden], down [hidden, ffn]; heads, kv_heads and ffn count what
    this shard holds, zero padding included.
    """

    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    o: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True)
class QKNorm:
    """RMSNorm weights of every query head and of every key head, [head_dim] each."""

    q: torch.Tensor
    k: torch.Tensor


@dataclass(frozen=True)
class LayerWeights:
    """One layer: norms [hidden], replicated on every rank, and the rank's shards."""

    input_norm: torch.Tensor
    post_attention_norm: torch.Tensor
    qk_norm: QKNorm | None
    shards: tuple[LayerShard, ...]


@dataclass(frozen=True)
class DecoderWeights:
    """All that one rank computes with. `head` holds one [vocab / shards, hidden] block a shard."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
    head: tuple[torch.Tensor, ...]


class Checkpoint:
    """An open checkpoint folder. Checks names and shapes before anything is loaded.

    Raises:
        CheckpointError: a file that is no safetensors, a tensor that is missing, extra, in two files, or of the wrong
            shape.
    """

    def __init__(self, folder: Path, config: DecoderConfig) -> None:
        self._folder, self._config = folder, config
        self._files = ExitStack()
        self._where: dict[str, safe_open] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                file = self._files.enter_context(safe_open(path, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{path}: not a whole safetensors file ({error}); fetch it again") from None
            for name in file.keys():  # noqa: SIM118, this is no dict
                if name in self._where:
                    raise CheckpointError(f"{path}: tensor {name} is in another file too; keep one of them")
                self._where[name] = file
        self._check(_expected_shapes(config))

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._files.close()

    def load(
        self, sharding: Sharding, dtype: torch.dtype, device: torch.device, loaded: Callable[[], None]
    ) -> DecoderWeights:
        """Loads one rank's shards; calls `loaded` after each layer."""

        def place(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(device, dtype).contiguous()

        layers = []
        for index in range(self._config.num_layers):
            layers.append(self._layer(f"model.layers.{index}", sharding, place))
            loaded()
        embedding = place(self._tensor("model.embed_tokens.weight"))
        head = embedding if self._config.tie_word_embeddings else self._tensor("lm_head.weight")
        return DecoderWeights(
            embedding=embedding,
            layers=tuple(layers),
            final_norm=place(self._tensor("model.norm.weight")),
            head=tuple(place(sharding.block(head, 0, shard)) for shard in sharding.own),
        )

    def _layer(self, prefix: str, sharding: Sharding, place: Place) -> LayerWeights:
        def tensor(name: str) -> torch.Tensor:
            return self._tensor(f"{prefix}.{name}")

        def by_kv_head(name: str, dim: int) -> torch.Tensor:
            return tensor(name).unflatten(dim, (self._config.num_kv_heads, -1))

        qkv = [by_kv_head(f"self_attn.{part}_proj.weight", 0) for part in "qkv"]  # [KV, G * D or D, hidden]
        biases = [by_kv_head(f"self_attn.{part}_proj.bias", 0) for part in "qkv" if self._config.family.qkv_bias]
        o = by_kv_head("self_attn.o_proj.weight", 1)  # [hidden, KV, G * D]
        gate, up, down = (tensor(f"mlp.{part}_proj.weight") for part in ("gate", "up", "down"))

        def stacked(tensors: list[torch.Tensor], shard: int) -> torch.Tensor:
            return place(torch.cat([sharding.block(tensor, 0, shard).flatten(0, 1) for tensor in tensors]))

        return LayerWeights(
            input_norm=place(tensor("input_layernorm.weight")),
            post_attention_norm=place(tensor("post_attention_layernorm.weight")),
            qk_norm=QKNorm(place(tensor("self_attn.q_norm.weight")), place(tensor("self_attn.k_norm.weight")))
            if self._config.family.qk_norm
            else None,
            shards=tuple(
                LayerShard(
                    qkv=stacked(qkv, shard),
                    qkv_bias=stacked(biases, shard) if biases else None,
                    o=place(sharding.block(o, 1, shard).flatten(1, 2)),
                    gate_up=place(torch.cat([sharding.block(gate, 0, shard), sharding.block(up, 0, shard)])),
                    down=place(sharding.block(down, 1, shard)),
                )
                for shard in sharding.own
            ),
        )

    def _tensor(self, name: str) -> torch.Tensor:
        return self._where[name].get_tensor(name)

    def _check(self, expected: dict[str, tuple[int, ...]]) -> None:
        for name in sorted(expected.keys() - self._where.keys()):
            raise CheckpointError(f"{self._folder}: tensor {name} is missing; complete the checkpoint")
        for name in sorted(self._where.keys() - expected.keys()):
            raise CheckpointError(f"{self._folder}: tensor {name} is not part of this architecture; remove it")
        for name, shape in expected.items():
            found = tuple(self._where[name].get_slice(name).get_shape())
            if found != shape:
                raise CheckpointError(
                    f"{self._folder}: tensor {name} has shape {found}: config.json says {shape}; fetch both again"
                )


def _expected_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    hidden, ffn = config.hidden_size, config.intermediate_size
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
        "mlp.gate_proj.weight": (ffn, hidden),
        "mlp.up_proj.weight": (ffn, hidden),
        "mlp.down_proj.weight": (hidden, ffn),
    }
    if config.family.qkv_bias:
        layer |= {"self_attn.q_proj.bias": (q,), "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.bias": (kv,)}
    if config.family.qk_norm:
        layer |= {"self_attn.q_norm.weight": (config.head_dim,), "self_attn.k_norm.weight": (config.head_dim,)}
    expected = {
        f"model.layers.{index}.{name}": shape for index in range(config.num_layers) for name, shape in layer.items()
    }
    expected |= {"model.embed_tokens.weight": (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
    if not config.tie_word_embeddings:
        expected["lm_head.weight"] = (config.vocab_size, hidden)
    return expected

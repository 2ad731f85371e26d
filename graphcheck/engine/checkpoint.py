"""Owns reading a Hugging Face checkpoint folder of safetensors into the virtual shards of one rank."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from graphcheck.engine.config import NUM_SHARDS
from graphcheck.engine.errors import CheckpointError
from graphcheck.engine.llama_config import LlamaConfig
from graphcheck.engine.numerics import padded_to


@dataclass(frozen=True)
class LayerShard:
    """Weights of one virtual shard of one layer, each contiguous and of the same shape in every shard.

    qkv [(heads + 2 * kv_heads) * head_dim, hidden], o [hidden, heads * head_dim], gate_up [2 * ffn, hidden],
    down [hidden, ffn]; heads, kv_heads and ffn count what this shard holds, zero padding included.
    """

    qkv: torch.Tensor
    o: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True)
class LayerWeights:
    input_norm: torch.Tensor
    post_attention_norm: torch.Tensor
    shards: tuple[LayerShard, ...]


@dataclass(frozen=True)
class LlamaWeights:
    """All that one rank computes with. `head` holds one [vocab / shards, hidden] block a virtual shard."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
    head: tuple[torch.Tensor, ...]


class Checkpoint:
    """An open checkpoint folder. Checks names and shapes before anything is loaded.

    Raises:
        CheckpointError: a file that is no safetensors, a tensor that is missing, extra or of the wrong shape.
    """

    def __init__(self, folder: Path, config: LlamaConfig) -> None:
        self._folder, self._config = folder, config
        self._files = ExitStack()
        self._where: dict[str, safe_open] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                file = self._files.enter_context(safe_open(path, framework="pt"))
            except SafetensorError as error:
                raise CheckpointError(f"{path}: not a whole safetensors file ({error}); fetch it again") from None
            self._where |= dict.fromkeys(file.keys(), file)
        self._check(_expected_shapes(config))

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._files.close()

    def load(
        self, shards: Iterable[int], dtype: torch.dtype, device: torch.device, loaded: Callable[[], None]
    ) -> LlamaWeights:
        """Loads the given virtual shards; calls `loaded` after each layer."""

        def place(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(device, dtype).contiguous()

        layers = []
        for index in range(self._config.num_layers):
            layers.append(self._layer(index, shards, place))
            loaded()
        embedding = place(self._tensor("model.embed_tokens.weight"))
        head = embedding if self._config.tie_word_embeddings else self._tensor("lm_head.weight")
        return LlamaWeights(
            embedding=embedding,
            layers=tuple(layers),
            final_norm=place(self._tensor("model.norm.weight")),
            head=tuple(place(_block(head, 0, shard)) for shard in shards),
        )

    def _layer(self, index: int, shards: Iterable[int], place: Callable[[torch.Tensor], torch.Tensor]) -> LayerWeights:
        def tensor(name: str) -> torch.Tensor:
            return self._tensor(f"model.layers.{index}.{name}.weight")

        kv_heads = self._config.num_kv_heads
        q = tensor("self_attn.q_proj").unflatten(0, (kv_heads, -1))  # [KV, G * D, hidden]
        k = tensor("self_attn.k_proj").unflatten(0, (kv_heads, -1))
        v = tensor("self_attn.v_proj").unflatten(0, (kv_heads, -1))
        o = tensor("self_attn.o_proj").unflatten(1, (kv_heads, -1))  # [hidden, KV, G * D]
        gate, up, down = tensor("mlp.gate_proj"), tensor("mlp.up_proj"), tensor("mlp.down_proj")
        return LayerWeights(
            input_norm=place(tensor("input_layernorm")),
            post_attention_norm=place(tensor("post_attention_layernorm")),
            shards=tuple(
                LayerShard(
                    qkv=place(torch.cat([_block(w, 0, shard).flatten(0, 1) for w in (q, k, v)])),
                    o=place(_block(o, 1, shard).flatten(1, 2)),
                    gate_up=place(torch.cat([_block(gate, 0, shard), _block(up, 0, shard)])),
                    down=place(_block(down, 1, shard)),
                )
                for shard in shards
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
                raise CheckpointError(f"{self._folder}: tensor {name} has shape {found}; config.json says {shape}")


def _block(tensor: torch.Tensor, dim: int, shard: int) -> torch.Tensor:
    """The `shard`-th of NUM_SHARDS equal blocks of `tensor` along `dim`, zero-padded to equal size."""
    size = padded_to(tensor.shape[dim], NUM_SHARDS) // NUM_SHARDS
    start = min(shard * size, tensor.shape[dim])
    block = tensor.narrow(dim, start, min(size, tensor.shape[dim] - start))
    if block.shape[dim] == size:
        return block
    padding = list(tensor.shape)
    padding[dim] = size - block.shape[dim]
    return torch.cat([block, block.new_zeros(padding)], dim)


def _expected_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    hidden, ffn = config.hidden_size, config.intermediate_size
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }
    expected = {
        f"model.layers.{index}.{name}.weight": shape
        for index in range(config.num_layers)
        for name, shape in layer.items()
    }
    expected |= {"model.embed_tokens.weight": (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
    if not config.tie_word_embeddings:
        expected["lm_head.weight"] = (config.vocab_size, hidden)
    return expected

"""Owns what the engine needs to know of a checkpoint's `config.json`, and refuses what it does not implement."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcheck.engine.errors import CheckpointError


@dataclass(frozen=True)
class LlamaConfig:
    """A Llama architecture in the terms of its paper and of Hugging Face's `LlamaConfig`."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_positions: int
    tie_word_embeddings: bool

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads


def read_config(folder: Path) -> LlamaConfig:
    """Reads `folder/config.json`.

    Raises:
        CheckpointError: no such file, an architecture or a feature that the engine does not implement.
    """
    path = folder / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable config ({error}); give a checkpoint folder") from None
    architectures = config.get("architectures") or []
    if architectures != ["LlamaForCausalLM"]:
        raise CheckpointError(f"{path}: architectures = {architectures}; the engine runs LlamaForCausalLM")
    _refuse_unsupported(path, config)
    rope = config.get("rope_parameters") or {}
    num_heads = config["num_attention_heads"]
    num_kv_heads = config.get("num_key_value_heads") or num_heads
    if num_heads % num_kv_heads:
        raise CheckpointError(f"{path}: {num_heads} query heads do not divide into {num_kv_heads} KV heads; mend it")
    return LlamaConfig(
        num_layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // num_heads,
        intermediate_size=config["intermediate_size"],
        vocab_size=config["vocab_size"],
        rms_norm_eps=config["rms_norm_eps"],
        rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
        max_positions=config["max_position_embeddings"],
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
    )


def _refuse_unsupported(path: Path, config: dict[str, Any]) -> None:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    refused = {
        "attention_bias": bool(config.get("attention_bias")),
        "mlp_bias": bool(config.get("mlp_bias")),
        f"hidden_act = {config.get('hidden_act')}": config.get("hidden_act", "silu") != "silu",
        f"rope_type = {rope_type}": rope_type != "default",
        "quantization_config": "quantization_config" in config,
    }
    for feature, present in refused.items():
        if present:
            raise CheckpointError(f"{path}: {feature} is not implemented; use a checkpoint without it")

"""Owns what the engine needs to know of a checkpoint's `config.json`, and refuses what it does not implement."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcheck.engine.errors import CheckpointError
from graphcheck.engine.rope import RopeScaling


@dataclass(frozen=True)
class Family:
    """What sets one family of decoders apart from plain Llama.

    `qkv_bias`: q, k and v projections have biases; `qk_norm`: each head of q and k is RMS-normalised before the
    rotary embedding.
    """

    qkv_bias: bool = False
    qk_norm: bool = False


FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": Family(),
    "MistralForCausalLM": Family(),
    "Qwen2ForCausalLM": Family(qkv_bias=True),
    "Qwen3ForCausalLM": Family(qk_norm=True),
}
"""Architecture name in `config.json` -> family."""

_ROPE_THETA = 10000.0
"""Of a config that names none (Su et al. 2021, arXiv:2104.09864)."""


@dataclass(frozen=True)
class DecoderConfig:
    """A decoder-only transformer in the terms of Hugging Face's configurations."""

    family: Family
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_positions: int
    tie_word_embeddings: bool

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads


def read_config(folder: Path) -> DecoderConfig:
    """Reads `folder/config.json`.

    Raises:
        CheckpointError: no such file, a value that cannot be, an architecture or a feature that the engine does not
            implement.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable config ({error}); give a checkpoint folder") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: not a readable config (no JSON object); give a checkpoint folder")
    architectures = config.get("architectures")
    family = next((family for name, family in FAMILIES.items() if architectures == [name]), None)
    if family is None:
        raise CheckpointError(
            f"{path}: architectures = {architectures}: not implemented; the engine runs {', '.join(FAMILIES)}"
        )
    return _parse(path, config, family)


def _parse(path: Path, config: dict[str, Any], family: Family) -> DecoderConfig:
    num_heads = _count(path, config, "num_attention_heads")
    num_kv_heads = _count(path, config, "num_key_value_heads", num_heads)
    hidden_size = _count(path, config, "hidden_size")
    if num_heads % num_kv_heads:
        raise CheckpointError(f"{path}: {num_heads} query heads do not divide into {num_kv_heads} KV heads; mend it")
    rope = _section(path, config, "rope_parameters")
    parsed = DecoderConfig(
        family=family,
        num_layers=_count(path, config, "num_hidden_layers"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=_count(path, config, "head_dim", hidden_size // num_heads),
        intermediate_size=_count(path, config, "intermediate_size"),
        vocab_size=_count(path, config, "vocab_size"),
        rms_norm_eps=_number(path, config, "rms_norm_eps"),
        rope_theta=_number(path, rope, "rope_theta", _number(path, config, "rope_theta", _ROPE_THETA)),
        rope_scaling=_rope_scaling(path, rope or _section(path, config, "rope_scaling")),
        max_positions=_count(path, config, "max_position_embeddings"),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
    )
    _refuse_unsupported(path, config, parsed)
    return parsed


def _count(path: Path, config: dict[str, Any], key: str, default: int | None = None) -> int:
    """A size; `default` where the config has none, or null."""
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or value < 1:
        raise CheckpointError(f"{path}: {key} = {value!r}: a size is a positive whole number; complete the config")
    return value


def _number(path: Path, config: dict[str, Any], key: str, default: float | None = None) -> float:
    """A factor; `default` where the config has none, or null."""
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise CheckpointError(f"{path}: {key} = {value!r}: a factor is a positive number; complete the config")
    return float(value)


def _section(path: Path, config: dict[str, Any], key: str) -> dict[str, Any]:
    """An object within the config; empty where it has none, or null."""
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: {key} = {value!r}: settings are an object of names and values; mend it")
    return value


def _rope_scaling(path: Path, rope: dict[str, Any]) -> RopeScaling | None:
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type == "default":
        return None
    if rope_type == "linear":
        return RopeScaling("linear", _number(path, rope, "factor"))
    if rope_type == "llama3":
        return RopeScaling(
            "llama3",
            _number(path, rope, "factor"),
            _number(path, rope, "low_freq_factor"),
            _number(path, rope, "high_freq_factor"),
            _count(path, rope, "original_max_position_embeddings"),
        )
    raise CheckpointError(
        f"{path}: rope_type = {rope_type} is not implemented; the engine runs default, linear, llama3"
    )


def _refuse_unsupported(path: Path, config: dict[str, Any], parsed: DecoderConfig) -> None:
    is_windowed = config.get("use_sliding_window", True) and config.get("sliding_window") is not None
    window = _count(path, config, "sliding_window") if is_windowed else None
    refused = {
        "attention_bias": bool(config.get("attention_bias")),
        "mlp_bias": bool(config.get("mlp_bias")),
        f"hidden_act = {config.get('hidden_act')}": config.get("hidden_act", "silu") != "silu",
        f"sliding_window = {window}": window is not None and window < parsed.max_positions,
        "quantization_config": bool(config.get("quantization_config")),
    }
    for feature, present in refused.items():
        if present:
            raise CheckpointError(f"{path}: {feature} is not implemented; use a checkpoint without it")

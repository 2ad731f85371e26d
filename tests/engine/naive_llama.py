"""Owns Llama written down a second time, without a cache: what the reference's numbers are compared with."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file


def naive_logits(model_dir: Path, token_ids: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Logits [vocab_size] of the last position, float32, over weights rounded to `dtype`."""
    config = json.loads((model_dir / "config.json").read_text())
    weights = {name: tensor.to(dtype).float() for name, tensor in load_file(model_dir / "model.safetensors").items()}
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    length = len(token_ids)
    angles = torch.arange(length)[:, None] * config["rope_theta"] ** (-torch.arange(0, dim, 2) / dim)  # [T, dim/2]
    cos, sin = angles.cos().repeat(1, 2)[None], angles.sin().repeat(1, 2)[None]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * weights[f"{name}.weight"]

    def rotate(x: torch.Tensor) -> torch.Tensor:  # [H, T, dim]
        half = torch.cat([-x[..., dim // 2 :], x[..., : dim // 2]], -1)
        return x * cos + half * sin

    x = weights["model.embed_tokens.weight"][list(token_ids)]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"

        def linear(x: torch.Tensor, name: str, prefix: str = prefix) -> torch.Tensor:
            return x @ weights[f"{prefix}.{name}.weight"].T

        h = norm(x, f"{prefix}.input_layernorm")
        q, k, v = (
            linear(h, f"self_attn.{name}").view(length, count, dim).transpose(0, 1)
            for name, count in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads))
        )
        q, k = rotate(q), rotate(k).repeat_interleave(heads // kv_heads, 0)
        scores = q @ k.transpose(1, 2) / dim**0.5 + torch.full((length, length), -torch.inf).triu(1)
        mixed = scores.softmax(-1) @ v.repeat_interleave(heads // kv_heads, 0)
        x = x + linear(mixed.transpose(0, 1).reshape(length, heads * dim), "self_attn.o_proj")
        h = norm(x, f"{prefix}.post_attention_layernorm")
        x = x + linear(torch.nn.functional.silu(linear(h, "mlp.gate_proj")) * linear(h, "mlp.up_proj"), "mlp.down_proj")
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return norm(x[-1], "model.norm") @ head.T

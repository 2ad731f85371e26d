"""Owns the element-wise parts of a Llama layer: RMSNorm, rotary embedding, SwiGLU. No weights, no shards."""

import torch
from torch.nn import functional as F


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Zhang & Sennrich 2019 (arXiv:1910.07467): x [tokens, hidden], the mean square in float32."""
    x_f32 = x.float()
    variance = x_f32.pow(2).mean(-1, keepdim=True)
    return weight * (x_f32 * torch.rsqrt(variance + eps)).to(x.dtype)


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """Shazeer 2020 (arXiv:2002.05202): [tokens, 2 * ffn] -> [tokens, ffn]. Halves are made contiguous first,
    because `silu` of a strided tensor rounds differently."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate.contiguous()) * up.contiguous()


class RotaryEmbedding:
    """Su et al. 2021 (arXiv:2104.09864), in Hugging Face's half-split layout; tables for positions < context."""

    def __init__(self, head_dim: int, theta: float, context: int, device: torch.device) -> None:
        exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
        inverse_frequencies = 1.0 / (theta**exponents)
        angles = torch.outer(torch.arange(context).float(), inverse_frequencies)
        angles = torch.cat([angles, angles], dim=-1)
        self._cos = angles.cos().to(device)  # [context, head_dim]
        self._sin = angles.sin().to(device)

    def at(self, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """cos, sin [tokens, 1, head_dim] for int32 positions [tokens]."""
        cos = self._cos.index_select(0, positions).to(dtype)
        sin = self._sin.index_select(0, positions).to(dtype)
        return cos.unsqueeze(1), sin.unsqueeze(1)


def rotate(x_tnh: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates x [tokens, heads, head_dim] by the angles of its positions."""
    first, second = x_tnh.chunk(2, dim=-1)
    return x_tnh * cos + torch.cat([-second, first], dim=-1) * sin

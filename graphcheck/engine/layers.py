"""Owns the element-wise parts of a Llama layer: RMSNorm, SwiGLU. No weights, no shards."""

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

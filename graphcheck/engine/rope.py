"""Owns the rotary position embedding: its frequencies, their scaling, its tables, and the rotation."""

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RopeScaling:
    """Stretches a model's context. `linear` divides every frequency by `factor`; `llama3` divides the low ones, keeps
    the high ones and blends between (Llama 3.1, arXiv:2407.21783)."""

    rope_type: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_max_positions: int = 0


def _inverse_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> torch.Tensor:
    """float32 [head_dim / 2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (theta**exponents)
    if scaling is None:
        return frequencies
    if scaling.rope_type == "linear":
        return frequencies / scaling.factor
    wavelengths = 2 * math.pi / frequencies
    low = scaling.original_max_positions / scaling.low_freq_factor
    high = scaling.original_max_positions / scaling.high_freq_factor
    scaled = torch.where(wavelengths > low, frequencies / scaling.factor, frequencies)
    smooth = (scaling.original_max_positions / wavelengths - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - smooth) * scaled / scaling.factor + smooth * scaled
    between = ~(wavelengths < high) & ~(wavelengths > low)
    return torch.where(between, blended, scaled)


class RotaryEmbedding:
    """Su et al. 2021 (arXiv:2104.09864), in Hugging Face's half-split layout; tables for positions < context."""

    def __init__(
        self, head_dim: int, theta: float, scaling: RopeScaling | None, context: int, device: torch.device
    ) -> None:
        angles = torch.outer(torch.arange(context).float(), _inverse_frequencies(head_dim, theta, scaling))
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

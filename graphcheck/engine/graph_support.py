"""Owns which settings the graph runner captures; with others decode falls back to eager, for a recorded reason."""

from graphcheck.engine.config import EngineConfig

_CAPTURED = {
    "dtype": ("float32", "bfloat16"),
    "kv": ("paged", "static"),
    "kv_dtype": ("auto",),
}

FALLBACK_REASONS = tuple(_CAPTURED)
"""Every reason that a step may record for having fallen back."""


def fallback_reason(config: EngineConfig) -> str | None:
    """Name of the first setting whose value is not captured (`dtype`, `kv`, `kv_dtype`), or None if decode is."""
    return next((name for name, values in _CAPTURED.items() if getattr(config, name) not in values), None)

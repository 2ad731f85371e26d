"""Owns which settings the graph runner captures; with others decode falls back to eager, for a recorded reason."""

from graphcheck.engine.config import EngineConfig

_DTYPES = ("float32", "bfloat16")
_LAYOUTS = ("paged", "static")
_KV_DTYPES = ("auto",)


def fallback_reason(config: EngineConfig) -> str | None:
    """Name of the first setting that is not supported (`dtype`, `kv`, `kv_dtype`), or None if decode is captured."""
    supported = {
        "dtype": config.dtype in _DTYPES,
        "kv": config.kv in _LAYOUTS,
        "kv_dtype": config.kv_dtype in _KV_DTYPES,
    }
    return next((reason for reason, is_supported in supported.items() if not is_supported), None)

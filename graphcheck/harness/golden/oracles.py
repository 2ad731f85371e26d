"""Owns which models have right answers of their own: a third opinion on a golden, computed without any model."""

import importlib
from collections.abc import Callable
from typing import cast

ORACLES: dict[str, str] = {
    "probe": "graphcheck.models.probe_tasks:answer",
}
"""Model name -> "module:function": a prompt's text in, its answer's text out, ValueError where there is none."""


def right_answer(model: str, text: str | None) -> str | None:
    """The whole right answer to a prompt text, or None where nobody but the model itself can say."""
    if model not in ORACLES or text is None:
        return None
    module, _, function = ORACLES[model].partition(":")
    answer = cast(Callable[[str], str], getattr(importlib.import_module(module), function))
    try:
        return answer(text)
    except ValueError:
        return None

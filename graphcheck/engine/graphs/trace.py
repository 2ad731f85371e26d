"""Owns the trace of a capture, op by op, and what two captures of one step must have in common.

A value that the host decided while capturing differs between captures with different contents; a value that the
device decides does not show. So a difference proves that something was frozen, without any golden.
"""

import os
import traceback
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

_RECORDER = os.path.dirname(__file__)


@dataclass(frozen=True)
class TracedOp:
    """One op as it was captured, views included: its host-side arguments, its tensors' shapes, its source line."""

    op: str
    scalars: tuple[object, ...]
    shapes: tuple[tuple[int, ...], ...]
    source: str


@dataclass(frozen=True)
class Frozen:
    """The first value that two captures of one op do not share."""

    op: str
    source: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.op} at {self.source}: {self.first} -> {self.second}"


def traced(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedOp:
    """The trace of one call."""
    leaves, _ = tree_flatten((args, kwargs))
    return TracedOp(
        op=op,
        scalars=tuple(leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)),
        shapes=tuple(tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)),
        source=source_line(),
    )


def source_line() -> str:
    """`step.py:88 (the line)`: the innermost caller outside torch and the recorder."""
    caller = next(
        frame
        for frame in reversed(traceback.extract_stack())
        if not frame.filename.startswith(_RECORDER) and "/torch/" not in frame.filename
    )
    return f"{os.path.basename(caller.filename)}:{caller.lineno} ({caller.line})"


def compare(first: list[TracedOp], second: list[TracedOp]) -> list[Frozen]:
    """What differs between two captures of one step, in order; after a differing op nothing more can be aligned."""
    frozen: list[Frozen] = []
    for one, other in zip(first, second, strict=False):
        if one.op != other.op:
            return [*frozen, Frozen(one.op, one.source, one.op, other.op)]
        if one.scalars != other.scalars:
            pairs = zip(one.scalars, other.scalars, strict=False)
            values = next(((a, b) for a, b in pairs if a != b), (one.scalars, other.scalars))
            frozen.append(Frozen(one.op, one.source, *map(str, values)))
        elif one.shapes != other.shapes:
            frozen.append(Frozen(one.op, one.source, str(one.shapes), str(other.shapes)))
    if len(first) != len(second):
        longer = max(first, second, key=len)
        extra = longer[min(len(first), len(second))]
        frozen.append(Frozen(extra.op, extra.source, f"{len(first)} ops", f"{len(second)} ops"))
    return frozen

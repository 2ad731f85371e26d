"""Owns the trace of a capture, op by op: how it is taken, and what two captures of one step must have in common.

A value that the host decided while capturing differs between captures with different contents; a value that the
device decides does not show. So a difference proves that something was frozen, without any golden.
"""

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_RECORDER = os.path.dirname(__file__)


@dataclass(frozen=True)
class TracedOp:
    """One op as it was captured, views included: its host-side arguments, its tensors' shapes, its source line.

    Work that is put on the graph by hand (GraphBackend.call) is one op by the name of its label.
    """

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


class Tracer(TorchDispatchMode):
    """While active, sees every op that passes torch's dispatcher, and keeps the trace of it if that is asked for.

    A kernel that is launched past the dispatcher is not seen. Reads no memory of the device, which a capture forbids.
    """

    def __init__(self, device_type: str, *, keep: bool = True) -> None:
        """`device_type` is where the step computes, as torch names it: tensors elsewhere are the host's."""
        super().__init__()
        self.trace: list[TracedOp] | None = [] if keep else None
        self._device_type = device_type
        self._paused = False

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one op of the step; returns its result."""
        return func(*args, **kwargs)

    def call(self, work: Callable[[], None], label: str) -> None:
        """Runs `work` as one op: what is inside is the device's own, not looked at, and may read its memory."""
        self._keep(label, (), {})
        with self._pause():
            work()

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        self._keep(str(func), args, kwargs)
        return self.run(func, args, kwargs)

    def _keep(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.trace is None:
            return
        leaves = tree_leaves((args, kwargs))
        scalars = tuple(self._host_value(leaf) for leaf in leaves if not self._is_on_device(leaf))
        shapes = tuple(tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor))
        self.trace.append(TracedOp(op, scalars, shapes, source_line()))

    @contextmanager
    def _pause(self) -> Iterator[None]:
        self._paused = True
        try:
            with torch._C.DisableTorchFunction():
                yield
        finally:
            self._paused = False

    def _is_on_device(self, leaf: object) -> bool:
        return isinstance(leaf, torch.Tensor) and leaf.device.type == self._device_type

    def _host_value(self, leaf: object) -> object:
        # What a tensor of the host holds is frozen as a number would be.
        return leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf


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

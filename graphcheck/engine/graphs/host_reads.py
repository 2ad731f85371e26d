"""Owns which operations read a device buffer on the host, so that a capture can refuse them.

Two nets are needed: the dispatcher sees `item`, `nonzero` and mask indexing; `tolist`, `numpy` and their kin never
reach it and are caught as functions.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from graphcheck.engine.errors import CaptureError
from graphcheck.engine.graphs.trace import source_line

_READING_OPS = frozenset(
    {
        "aten::_local_scalar_dense",
        "aten::equal",
        "aten::is_nonzero",
        "aten::item",
        "aten::masked_select",
        "aten::nonzero",
        "aten::unique_consecutive",
        "aten::unique_dim",
        "aten::_unique2",
    }
)
_MASK_INDEXING_OPS = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})

_READING_METHODS = frozenset(
    {
        torch.Tensor.tolist,
        torch.Tensor.numpy,
        torch.Tensor.__array__,
        torch.Tensor.__repr__,
        torch.Tensor.__bool__,
        torch.Tensor.__int__,
        torch.Tensor.__float__,
        torch.Tensor.__index__,
        torch.Tensor.item,
        torch.Tensor.cpu,
        torch.Tensor.data_ptr,
        torch.Tensor.new_tensor,
    }
)
_HOST_CONSTRUCTORS = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy})


def refuse_host_read(func: OpOverload, args: tuple[Any, ...]) -> None:
    """Raises CaptureError if the op reads a device buffer on the host, or has a shape that depends on one."""
    name = func._schema.name
    if name in _READING_OPS or (name in _MASK_INDEXING_OPS and _has_mask(args[1])):
        raise _error(str(func))


class HostReadMode(TorchFunctionMode):
    """While active, functions that copy between host and device memory raise CaptureError."""

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _READING_METHODS or func in _HOST_CONSTRUCTORS:
            raise _error(str(func.__qualname__))
        return func(*args, **(kwargs or {}))


def _has_mask(indices: Any) -> bool:
    return any(
        isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) for index in tree_leaves(indices)
    )


def _error(operation: str) -> CaptureError:
    return CaptureError(
        f"{operation} at {source_line()} copies between host and device memory: its value would be frozen; "
        "keep it in a device tensor"
    )

"""Owns the tape: the CPU counterpart of a captured graph, an instrument for correctness and never for speed.

What it shares with a CUDA graph: every op runs over the memory it was captured with, host scalars are frozen, the
KV cache is mutated for real, no model code runs at replay, and reading a device buffer on the host while capturing
is an error. Collectives are nodes of their own (`call`), because waiting for one is not an op that can be seen.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from graphcheck.engine.errors import CaptureError
from graphcheck.engine.graphs.base import GraphKey
from graphcheck.engine.graphs.host_reads import HostReadMode, refuse_host_read
from graphcheck.engine.graphs.trace import TracedOp, Tracer

_COLLECTIVE_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem")
_ALLOCATES_ONLY = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty")


class TapeAllocator:
    """Memory of a tape's intermediate results: taken at capture, held as long as the tape lives."""

    def __init__(self) -> None:
        self._held: list[torch.Tensor] = []

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """New memory of the shape, strides and dtype of `tensor`."""
        memory = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        self.hold(memory)
        return memory

    def hold(self, memory: torch.Tensor) -> None:
        """Takes charge of memory that the step allocated itself."""
        self._held.append(memory)

    def poison(self) -> None:
        """Fills all floating-point memory with NaN: a replay writes each of them before it reads it."""
        for memory in self._held:
            if memory.is_floating_point():
                memory.fill_(float("nan"))

    @property
    def num_bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in self._held)

    def free(self) -> None:
        self._held.clear()


class TapeGraph:
    """A recorded step: nodes to call in order. Arguments and results stay alive as long as it does."""

    def __init__(self) -> None:
        self._nodes: list[Callable[[], object]] = []
        self.labels: list[str] = []
        self.trace: list[TracedOp] | None = None
        self.allocator = TapeAllocator()

    @property
    def num_nodes(self) -> int:
        return len(self._nodes)

    def add(self, node: Callable[[], object], label: str) -> None:
        self._nodes.append(node)
        self.labels.append(label)

    @torch.no_grad()
    def replay(self) -> None:
        for node in self._nodes:
            node()

    def poison(self) -> None:
        """See Graph.poison."""
        self.allocator.poison()

    def destroy(self) -> None:
        self._nodes.clear()
        self.labels.clear()
        self.allocator.free()


class TapeBackend:
    """Records a step with a dispatch mode. One capture at a time. `trace` gives every graph its trace."""

    name = "tape"

    def __init__(self, *, trace: bool = False) -> None:
        self._trace = trace
        self._recorder: _Recorder | None = None

    def warm_up(self, step: Callable[[], None]) -> None:
        """See GraphBackend.warm_up: a CPU creates nothing on first use that a tape could not hold."""

    @torch.no_grad()
    def capture(self, key: GraphKey, step: Callable[[], None]) -> TapeGraph:
        """See GraphBackend.capture."""
        graph = TapeGraph()
        self._recorder = _Recorder(graph, trace=self._trace)
        try:
            with HostReadMode(), self._recorder:
                step()
        except CaptureError as error:
            raise CaptureError(f"capture of {key}: {error}") from error
        except Exception as error:
            last = graph.labels[-1] if graph.labels else "the start"
            raise CaptureError(
                f"capture of {key} failed after {last}: {error}; run with graph = off to see whether the step itself "
                "is at fault"
            ) from error
        finally:
            self._recorder = None
        return graph

    def call(self, work: Callable[[], None], label: str) -> None:
        """See GraphBackend.call."""
        if self._recorder is None:
            work()
            return
        self._recorder.call(work, label)
        self._recorder.graph.add(work, label)


class _Recorder(Tracer):
    """Runs every op of a step as it comes and puts on the tape what must run again."""

    def __init__(self, graph: TapeGraph, *, trace: bool) -> None:
        super().__init__("cpu", keep=trace)
        self.graph = graph
        graph.trace = self.trace

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See Tracer.run."""
        if func.namespace in _COLLECTIVE_NAMESPACES:
            raise CaptureError(
                f"{func}: a collective outside the communication layer would be lost at replay; "
                "issue it through Collectives.launch and wait"
            )
        refuse_host_read(func, args)
        result = func(*args, **kwargs)
        if func._schema.is_mutable:
            self.graph.add(lambda: func(*args, **kwargs), str(func))
            return result
        if func._schema.name in _ALLOCATES_ONLY:
            # Memory alone: there is nothing to run again.
            self.graph.allocator.hold(result)
            return result
        if _is_view(result, args, kwargs):
            return result
        return self._record_functional(func, args, kwargs, result)

    def _record_functional(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """Gives the result memory of its own, which each replay writes again."""
        results = result if isinstance(result, tuple | list) else (result,)
        if not all(isinstance(tensor, torch.Tensor) for tensor in results):
            raise CaptureError(
                f"{func}: returns {type(result).__name__}, which a graph cannot hold; use an op on tensors"
            )
        owned = [self.graph.allocator.like(tensor) for tensor in results]
        for memory, tensor in zip(owned, results, strict=True):
            memory.copy_(tensor)
        out_form = _out_overload(func)
        if out_form is not None:
            overload, names = out_form
            outputs = dict(zip(names, owned, strict=True))
            self.graph.add(lambda: overload(*args, **kwargs, **outputs), str(func))
        else:

            def run_and_copy() -> None:
                again = func(*args, **kwargs)
                for memory, tensor in zip(owned, again if len(owned) > 1 else (again,), strict=True):
                    memory.copy_(tensor)

            self.graph.add(run_and_copy, str(func))
        return type(result)(owned) if isinstance(result, tuple | list) else owned[0]


def _is_view(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if the result lies in an argument's memory. Storages are compared, because `_unsafe_view` does not say."""
    storages = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
    return any(
        leaf.untyped_storage()._cdata in storages for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)
    )


@cache
def _out_overload(func: OpOverload) -> tuple[OpOverload, list[str]] | None:
    """The overload of `func` that writes into given memory, with its out-argument names; None if there is none."""
    wanted = [(argument.name, str(argument.type)) for argument in func._schema.arguments]
    for name in func.overloadpacket.overloads():
        overload = getattr(func.overloadpacket, name)
        arguments = overload._schema.arguments
        outs = [argument.name for argument in arguments if argument.is_out]
        if len(outs) != len(func._schema.returns):
            continue
        if [(argument.name, str(argument.type)) for argument in arguments if not argument.is_out] == wanted:
            return overload, outs
    return None

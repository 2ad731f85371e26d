"""Owns CUDA graphs: capture on a stream of their own over one memory pool, replay, destruction."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from graphcheck.engine.errors import CaptureError
from graphcheck.engine.graphs.base import GraphKey
from graphcheck.engine.graphs.trace import TracedOp, Tracer


class CudaGraph:
    """A captured step. Its inputs and outputs are the memory it was captured with; the rest is the pool's."""

    def __init__(self, graph: torch.cuda.CUDAGraph, trace: list[TracedOp] | None) -> None:
        self._graph = graph
        self.trace = trace

    def replay(self) -> None:
        self._graph.replay()

    def poison(self) -> None:
        """See Graph.poison: the pool's memory has no names to reach it by."""

    def destroy(self) -> None:
        self._graph.reset()


class CudaGraphBackend:
    """`torch.cuda.CUDAGraph`. All graphs of a rank share one pool: they replay one after another, never together,
    and what a step leaves behind lies in the contract's buffers, outside the pool. `trace` gives every graph its
    trace; kernels of Triton are not in it, since they are launched past torch's dispatcher."""

    name = "cuda"

    def __init__(self, device: torch.device, *, trace: bool = False) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._trace = trace
        self._tracer: Tracer | None = None

    def warm_up(self, step: Callable[[], None]) -> None:
        """See GraphBackend.warm_up: library handles, workspaces, communicators and what a tracer imports are made on
        first use, which a capture forbids."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream), self._traced():
            step()
        torch.cuda.current_stream().wait_stream(self._stream)
        torch.cuda.synchronize()

    def capture(self, key: GraphKey, step: Callable[[], None]) -> CudaGraph:
        """See GraphBackend.capture."""
        graph = torch.cuda.CUDAGraph()
        try:
            # Only this thread's calls are watched: NCCL's own threads query events while the capture is open.
            with (
                torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"),
                self._traced() as trace,
            ):
                step()
        except RuntimeError as error:
            raise CaptureError(
                f"capture of {key} failed: {str(error).splitlines()[0]}; run with graph = off to see whether the step "
                "itself is at fault, or on a CPU, whose tape names the op"
            ) from error
        return CudaGraph(graph, trace)

    def call(self, work: Callable[[], None], label: str) -> None:
        """See GraphBackend.call: device work is captured as it is issued."""
        if self._tracer is None:
            work()
        else:
            self._tracer.call(work, label)

    @contextmanager
    def _traced(self) -> Iterator[list[TracedOp] | None]:
        """The trace of what runs inside the block; None, and nothing between the step and torch, if not asked for."""
        if not self._trace:
            yield None
            return
        self._tracer = Tracer(self._device.type)
        try:
            with self._tracer:
                yield self._tracer.trace
        finally:
            self._tracer = None

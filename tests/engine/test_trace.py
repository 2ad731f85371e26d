"""The tracer on its own, over tensors that have no memory to read, and in the CUDA backend on a machine without one."""

from collections.abc import Callable
from contextlib import nullcontext
from unittest.mock import MagicMock

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from graphcheck.engine.audit import Auditor, Breach
from graphcheck.engine.collectives import StagedCollectives
from graphcheck.engine.device import CpuDevice
from graphcheck.engine.graphs.base import GraphBackend, GraphKey
from graphcheck.engine.graphs.cuda import CudaGraphBackend
from graphcheck.engine.graphs.tape import TapeBackend
from graphcheck.engine.graphs.trace import Frozen, Tracer, compare
from graphcheck.engine.hooks import HookChain
from graphcheck.engine.kv_cache import PagedKVCache
from graphcheck.engine.sites import FixSites
from graphcheck.engine.step_io import ContractBuffers
from tests.engine.conftest import EngineMaker

CPU = torch.device("cpu")
KEY = GraphKey("decode", 1, 1)
SITE = "layers.0.o_proj.reduce"


def on_device() -> torch.Tensor:
    return torch.ones(4, device="meta")


def frozen(step: Callable[[int], object]) -> list[Frozen]:
    """What differs between two runs of `step`, with 3 and with 17 from the host."""
    first, second = Tracer("meta"), Tracer("meta")
    for tracer, value in ((first, 3), (second, 17)):
        with tracer:
            step(value)
    assert first.trace
    assert second.trace
    return compare(first.trace, second.trace)


def test_a_number_of_the_host_is_named_with_its_line() -> None:
    (found,) = frozen(lambda value: on_device().view(2, 2) * value)
    assert (found.op, found.first, found.second) == ("aten.mul.Tensor", "3", "17")
    assert found.source.startswith("test_trace.py:")
    assert "on_device().view(2, 2) * value" in found.source


def test_a_tensor_of_the_host_is_named_by_what_it_holds() -> None:
    host = {value: torch.tensor(value) for value in (3, 17)}
    (found,) = frozen(lambda value: on_device() + host[value])
    assert (found.op, found.first, found.second) == ("aten.add.Tensor", "3", "17")


def test_a_branch_of_the_host_is_named() -> None:
    (found,) = frozen(lambda value: on_device().exp() if value < 10 else on_device().sin())
    assert (found.first, found.second) == ("aten.exp.default", "aten.sin.default")


def test_a_step_that_the_host_does_not_decide_has_equal_traces() -> None:
    assert frozen(lambda value: (on_device().add(1).view(2, 2).sum(), str(value))) == []


def test_a_call_is_one_op_by_its_label_and_what_is_inside_is_not_seen() -> None:
    tracer, work = Tracer("meta"), MagicMock(side_effect=lambda: on_device().exp())
    with tracer:
        on_device().sin()
        tracer.call(work, "launch here")
        on_device().cos()
    assert tracer.trace is not None
    assert [op.op for op in tracer.trace if "ones" not in op.op] == [
        "aten.sin.default",
        "launch here",
        "aten.cos.default",
    ]
    assert "test_trace.py" in tracer.trace[2].source
    work.assert_called_once_with()


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda of which nothing is left: a capture runs the step where its tensors are, and captures nothing."""
    for name in ("Stream", "CUDAGraph", "graph_pool_handle", "current_stream", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    for name in ("stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, **__: nullcontext())


def test_cuda_graph_without_an_audit_has_no_trace_and_nothing_watches_its_step(without_gpu: None) -> None:
    backend, watching = CudaGraphBackend(CPU), []

    def step() -> None:
        watching.append(_get_current_dispatch_mode())

    backend.warm_up(step)
    assert backend.capture(KEY, step).trace is None
    assert watching == [None, None]


@pytest.mark.parametrize("fix", ["none", "device-metadata"])
def test_audit_names_what_a_cuda_graph_has_frozen_and_nothing_else(
    make_engine: EngineMaker, without_gpu: None, monkeypatch: pytest.MonkeyPatch, fix: str
) -> None:
    monkeypatch.setattr(CpuDevice, "make_graphs", lambda self, *, trace: CudaGraphBackend(CPU, trace=trace))
    engine = make_engine(graph="on", audit="on", buckets="2", lanes=2, fixes_off=() if fix == "none" else (fix,))
    breaches = engine.counters().breaches
    assert breaches is not None
    assert {(breach.clause, breach.buffer) for breach in breaches} == (
        set() if fix == "none" else {("residency", "aten.full.default")}
    )
    assert all("step.py" in breach.detail for breach in breaches)


class LoneTransport:
    """Two ranks that hold the same, without a second one."""

    def meet(self, kind: str, rows: int, nbytes: int, site: str) -> None:
        return None

    def all_gather(self, output: torch.Tensor, sent: torch.Tensor, site: str) -> MagicMock:
        output.view(2, -1).copy_(sent)
        return MagicMock()

    def all_reduce(self, buffer: torch.Tensor, site: str) -> MagicMock:
        buffer.mul_(2)
        return MagicMock()

    def wait(self, pending: MagicMock) -> None:
        pending.wait()


def audit_reduce(backend: GraphBackend, fixes_off: frozenset[str]) -> list[Breach]:
    """What the audit says of a step that sums over two ranks and reads the sum."""
    collectives = StagedCollectives(
        rank=0,
        tp=2,
        fixed_tree=True,
        backend=backend,
        transport=LoneTransport(),
        sites=FixSites(fixes_off),
        hooks=HookChain(),
    )
    x, out = torch.ones(1, 4), torch.zeros(1, 4)

    def step() -> None:
        out.copy_(collectives.reduce(x, SITE))
        collectives.end_step()

    kv_cache = PagedKVCache(
        num_layers=1, num_shards=1, num_pages=1, page_size=1, kv_heads=1, head_dim=1, dtype=torch.float32, device=CPU
    )
    auditor = Auditor(kv_cache)
    inputs = ContractBuffers.allocate(lanes=1, blocks=1, vocab=1, device=CPU).inputs
    auditor.captured(KEY, backend.capture(KEY, step), backend.capture(KEY, step), inputs)
    return auditor.breaches


@pytest.mark.parametrize("backend", ["tape", "cuda"])
def test_a_collective_that_is_not_waited_for_is_named_on_both_backends(without_gpu: None, backend: str) -> None:
    def make() -> GraphBackend:
        return TapeBackend(trace=True) if backend == "tape" else CudaGraphBackend(CPU, trace=True)

    assert audit_reduce(make(), frozenset()) == []
    (breach,) = audit_reduce(make(), frozenset({"allreduce-sync"}))
    assert (breach.clause, breach.buffer, breach.replay) == ("visibility", SITE, 0)


def test_an_audit_of_a_graph_without_a_trace_is_no_clean_audit() -> None:
    with pytest.raises(AssertionError):
        audit_reduce(TapeBackend(), frozenset())

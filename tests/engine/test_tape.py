"""The tape: what a capture records, what it refuses, and what it says when it does."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from graphcheck.engine.errors import CaptureError
from graphcheck.engine.graphs.base import GraphKey
from graphcheck.engine.graphs.tape import TapeBackend, TapeGraph

KEY = GraphKey("decode", 1, 4)


def capture(step: Callable[[], object]) -> TapeGraph:
    return TapeBackend().capture(KEY, lambda: (step(), None)[1])


def test_replay_sees_new_input_and_frozen_host_numbers() -> None:
    x, out, host = torch.ones(4), torch.zeros(4), {"scale": 2.0}
    graph = capture(lambda: out.copy_(x * host["scale"]))
    x.fill_(5.0)
    host["scale"] = 100.0
    graph.replay()
    assert out.tolist() == [10.0] * 4


def test_replay_mutates_the_cache_at_the_slots_of_the_replay() -> None:
    cache, slots, values = torch.zeros(8, 2), torch.zeros(2, dtype=torch.int32), torch.ones(2, 2)

    def step() -> None:
        cache[slots] = values

    graph = capture(step)
    cache.zero_()
    slots.copy_(torch.tensor([3, 5]))
    graph.replay()
    assert cache.sum(1).tolist() == [0, 0, 0, 2, 0, 2, 0, 0]


def test_replay_runs_no_python_of_the_step() -> None:
    calls = []
    x, out = torch.ones(2), torch.zeros(2)

    def step() -> None:
        calls.append(1)
        out.copy_(x + 1)

    graph = capture(step)
    graph.replay()
    graph.replay()
    assert calls == [1]


@pytest.mark.parametrize(
    "step",
    [
        lambda x, w, i: F.linear(x, w).softmax(-1),
        lambda x, w, i: F.embedding(i, w),
        lambda x, w, i: torch.cat([x.chunk(2, -1)[1], x.split(4, -1)[0]], -1).pow(2).mean(-1, keepdim=True),
        lambda x, w, i: torch.where(x > 0, x, -x).argmax(-1).int(),
        lambda x, w, i: w.index_select(0, i).unflatten(0, (2, -1)).flatten(1, 2).rsqrt().isfinite().all(-1),
        lambda x, w, i: x.view(2, 2, 8).transpose(0, 1).reshape(4, 8) @ w,
        lambda x, w, i: torch.arange(8, dtype=torch.int32) >= i.unsqueeze(1),
        lambda x, w, i: x.max(-1).values + x.topk(2).values.sum(-1),
    ],
)
def test_replay_is_bitwise_what_eager_computes(step: Callable[..., torch.Tensor]) -> None:
    x, w, i = torch.randn(4, 8), torch.randn(8, 8), torch.zeros(4, dtype=torch.int32)
    out = step(x, w, i).clone()
    graph = capture(lambda: out.copy_(step(x, w, i)))
    x.normal_()
    i.copy_(torch.tensor([7, 1, 3, 1]))
    out.zero_()
    graph.replay()
    assert torch.equal(out.nan_to_num(-1.0), step(x, w, i).nan_to_num(-1.0))


HOST_READS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "__array__": lambda x: np.asarray(x),
    "cpu": lambda x: x.cpu(),
    "data_ptr": lambda x: x.data_ptr(),
    "__repr__": lambda x: repr(x),
    "format": lambda x: f"{x.sum()}",
    "__bool__": lambda x: 1 if x.sum() > 0 else 2,
    "__int__": lambda x: int(x.sum()),
    "__float__": lambda x: float(x.sum()),
    "__index__": lambda x: range(x.int()[0]),
    "tensor": lambda x: torch.tensor(x),
    "constant": lambda x: torch.tensor([1.0]),
    "new_tensor": lambda x: x.new_tensor([1.0]),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "mask_put": lambda x: x.__setitem__(x > 0, torch.zeros(x.shape[0])),
    "masked_select": lambda x: x.masked_select(x > 0),
    "equal": lambda x: torch.equal(x, x),
    "unique": lambda x: x.unique(),
}


@pytest.mark.parametrize("name", HOST_READS)
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")
def test_host_read_in_capture_raises(name: str) -> None:
    x = torch.ones(4)
    with pytest.raises(CaptureError, match=r"copies between host and device memory.*keep it in a device tensor"):
        capture(lambda: HOST_READS[name](x))


def test_failing_capture_names_op_bucket_and_what_to_try() -> None:
    x = torch.ones(4)
    with pytest.raises(CaptureError, match=r"decode bucket 4 .*failed after aten\.add.*no such thing.*graph = off"):
        capture(lambda: (x + 1, (_ for _ in ()).throw(ValueError("no such thing")))[1].send(None))


def test_host_read_names_file_line_and_source() -> None:
    def step() -> None:
        torch.ones(4).tolist()

    with pytest.raises(CaptureError, match=r"test_tape\.py:\d+ \(torch\.ones\(4\)\.tolist\(\)\)"):
        capture(step)


def test_collective_outside_the_communication_layer_raises(single_rank_group: None) -> None:
    x = torch.ones(4)
    with pytest.raises(CaptureError, match=r"c10d.*Collectives"):
        capture(lambda: torch.distributed.all_reduce(x))


def test_call_runs_once_a_replay_and_its_ops_are_not_recorded() -> None:
    backend, x = TapeBackend(), torch.zeros(1)
    graph = backend.capture(KEY, lambda: backend.call(lambda: x.add_(1), "add"))
    graph.replay()
    graph.replay()
    assert x.item() == 3.0
    assert graph.labels == ["add"]


def test_capture_that_failed_leaves_no_open_recording() -> None:
    backend, x, out = TapeBackend(), torch.ones(1), torch.zeros(1)
    with pytest.raises(CaptureError):
        backend.capture(KEY, lambda: x.item())
    backend.call(lambda: out.add_(1), "eager again")
    assert out.item() == 1.0
    graph = backend.capture(KEY, lambda: out.add_(x))
    assert graph.labels == ["aten.add_.Tensor"]


def test_destroyed_graph_holds_nothing() -> None:
    x = torch.ones(4)
    graph = capture(lambda: x * 2)
    assert graph.allocator.num_bytes > 0
    graph.destroy()
    assert (graph.num_nodes, graph.allocator.num_bytes) == (0, 0)

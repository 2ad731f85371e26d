"""The graph runner driven directly, without a scheduler: refusals, identity, half-way failures, int32 in place."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import graphcheck.engine.attention as attention_module
from graphcheck.engine.batch import HostBatch, decode_batch
from graphcheck.engine.config import EngineConfig
from graphcheck.engine.contract import INPUTS
from graphcheck.engine.device import CpuDevice, Device
from graphcheck.engine.engine import Engine
from graphcheck.engine.errors import ContractError
from graphcheck.engine.graph_runner import GraphRunner
from graphcheck.engine.graph_support import fallback_reason
from graphcheck.engine.request import Request, Sequence
from graphcheck.engine.step_io import StepInputs
from tests.engine.conftest import EngineMaker
from tests.engine.outputs import random_requests, run_engine

VOCAB = 211
ENGINE = Path(attention_module.__file__).parent


def runner_of(engine: Engine) -> GraphRunner:
    assert engine.runner is not None
    return engine.runner


def batch_of(*lengths: int, page_size: int = 16, max_blocks: int = 8) -> HostBatch:
    """One lane per length, each in pages of its own, about to decode its last token."""
    sequences, page = [], 1
    for length in lengths:
        pages = -(-length // page_size)
        sequences.append(Sequence(Request("r", (5,) * (length - 1)), list(range(page, page + pages)), [length % 50]))
        page += pages
    return decode_batch(sequences, page_size=page_size, max_blocks=max_blocks)


def eager_logits(engine: Engine, batch: HostBatch, rows: int) -> torch.Tensor:
    outputs = engine.parts.eager_outputs.rows(rows)
    with torch.no_grad():
        engine.parts.program.decode(StepInputs.from_host(batch.padded(rows), CpuDevice()), outputs)
    return outputs.logits[: batch.rows].clone()


def fill_kv(engine: Engine) -> None:
    torch.manual_seed(0)
    engine.parts.kv_cache.keys.normal_()
    engine.parts.kv_cache.values.normal_()


def test_two_replays_with_different_lengths_equal_eager(make_engine: EngineMaker) -> None:
    engine = make_engine(graph="on")
    fill_kv(engine)
    for lengths in ((3, 40), (17, 5), (64, 63)):
        batch = batch_of(*lengths)
        runner_of(engine).prepare(batch)
        replayed = runner_of(engine).replay().logits.clone()
        assert torch.equal(replayed, eager_logits(engine, batch, 2))


def test_prepare_and_replay_then_a_direct_eager_forward_on_the_same_object(make_engine: EngineMaker) -> None:
    engine = make_engine(graph="on")
    fill_kv(engine)
    batch, other = batch_of(9, 30, 4), batch_of(21)
    runner_of(engine).prepare(batch)
    replayed = runner_of(engine).replay().logits.clone()
    before = {spec.name: getattr(runner_of(engine).inputs, spec.name).clone() for spec in INPUTS}
    eager_logits(engine, other, 1)
    after = {spec.name: getattr(runner_of(engine).inputs, spec.name) for spec in INPUTS}
    assert all(torch.equal(before[name], after[name]) for name in before), "eager touched a captured buffer"
    fill_kv(engine)
    assert torch.equal(replayed, eager_logits(engine, batch, 4))


def test_replay_without_prepare_raises(make_engine: EngineMaker) -> None:
    runner = runner_of(make_engine(graph="on"))
    with pytest.raises(ContractError, match="prepare one first"):
        runner.replay()
    runner.prepare(batch_of(5))
    runner.replay()
    with pytest.raises(ContractError, match="prepare one first"):
        runner.replay()


def test_refresh_that_raises_half_way_leaves_a_runner_that_raises(
    make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(make_engine(graph="on"))
    runner.prepare(batch_of(5, 9))
    uploads = []

    def fail_on_the_third(self: CpuDevice, buffer: torch.Tensor, values: np.ndarray) -> None:
        uploads.append(buffer)
        if len(uploads) == 3:
            raise RuntimeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(CpuDevice, "upload", fail_on_the_third)
        with pytest.raises(RuntimeError, match="planted"):
            runner.prepare(batch_of(7, 3))
    with pytest.raises(ContractError, match="no whole batch"):
        runner.replay()
    runner.prepare(batch_of(7, 3))
    runner.replay()


def test_batch_without_a_captured_bucket_raises(make_engine: EngineMaker) -> None:
    with pytest.raises(ContractError, match="5 lanes: no captured bucket"):
        runner_of(make_engine(graph="on", lanes=4, buckets="1,2,4")).prepare(batch_of(1, 1, 1, 1, 1))
    destroyed = runner_of(make_engine(graph="on"))
    destroyed.destroy()
    with pytest.raises(ContractError, match="no captured bucket"):
        destroyed.prepare(batch_of(5))


@pytest.mark.parametrize("spec", INPUTS, ids=lambda spec: spec.name)
def test_rebinding_a_captured_buffer_raises_with_buffer_and_owner(make_engine: EngineMaker, spec: object) -> None:
    runner = runner_of(make_engine(graph="on"))
    with pytest.raises(ContractError, match=rf"buffer {spec.name} \(owner: {spec.owner}\)"):
        runner.rebind(spec.name, torch.zeros(1))


def test_missing_input_cannot_be_left_out() -> None:
    fields = {spec.name: np.zeros(1, np.int32) for spec in INPUTS}
    del fields["block_tables"]
    with pytest.raises(TypeError, match="block_tables"):
        HostBatch(**fields)
    with pytest.raises(TypeError, match="block_tables"):
        StepInputs(**{name: torch.from_numpy(value) for name, value in fields.items()})


def test_recording_hands_the_captured_buffers_to_kv_update_and_attention(
    make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int, int]] = []
    attention = attention_module.GatherAttention.__init__

    def spy(self: object, kv_cache: object, slot_mapping: torch.Tensor, seq_lens: torch.Tensor, *rest: object) -> None:
        # Storage addresses, since `data_ptr` is refused while a capture is open.
        seen.append(tuple(tensor.untyped_storage()._cdata for tensor in (slot_mapping, seq_lens, rest[0])))
        attention(self, kv_cache, slot_mapping, seq_lens, *rest)

    monkeypatch.setattr(attention_module.GatherAttention, "__init__", spy)
    inputs = runner_of(make_engine(graph="on")).inputs
    expected = tuple(
        tensor.untyped_storage()._cdata for tensor in (inputs.slot_mapping, inputs.seq_lens, inputs.block_tables)
    )
    assert seen == [expected] * 4


def test_replay_inputs_are_int32_on_the_device_and_changed_in_place(make_engine: EngineMaker) -> None:
    runner = runner_of(make_engine(graph="on"))
    before = {spec.name: getattr(runner.inputs, spec.name).data_ptr() for spec in INPUTS}
    runner.prepare(batch_of(20, 33))
    assert runner.inputs.block_tables[:2, :3].tolist() == [[1, 2, 0], [3, 4, 5]]
    for spec in INPUTS:
        buffer = getattr(runner.inputs, spec.name)
        assert buffer.dtype == (torch.bool if spec.name == "force_mask" else torch.int32)
        assert buffer.data_ptr() == before[spec.name]


def test_eager_decode_allocates_a_constant_number_of_metadata_tensors(
    make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    from_host = StepInputs.from_host.__func__

    def counted(cls: type, batch: HostBatch, device: Device) -> StepInputs:
        inputs = from_host(cls, batch, device)
        made.append(len(vars(inputs)))
        return inputs

    monkeypatch.setattr(StepInputs, "from_host", classmethod(counted))
    steps = run_engine(make_engine(graph="off"), random_requests(9, vocab=VOCAB)).steps
    assert made == [len(INPUTS)] * sum(step.phase == "decode" for step in steps)


@pytest.mark.parametrize(
    ("settings", "reason"), [({"dtype": "float16"}, "dtype"), ({"kv_dtype": "bfloat16"}, "kv_dtype")]
)
def test_unsupported_setting_falls_back_with_its_reason(
    make_engine: EngineMaker, settings: dict[str, str], reason: str
) -> None:
    engine = make_engine(graph="on", **settings)
    steps = run_engine(engine, random_requests(4, vocab=VOCAB)).steps
    decode = [step for step in steps if step.phase == "decode"]
    assert {(step.replayed, step.fallback) for step in decode} == {(False, reason)}
    counters = engine.counters()
    assert (counters.captures, counters.replays, counters.fallbacks) == (0, 0, {reason: len(decode)})


def test_unknown_layout_is_not_supported() -> None:
    config = EngineConfig.from_settings({"graph": "on"}, frozenset())
    assert fallback_reason(config) is None
    assert fallback_reason(replace(config, kv="ragged")) == "kv"


def test_engine_has_no_literal_attribute_lookups() -> None:
    found = [
        f"{path.name}:{node.lineno}"
        for path in sorted(ENGINE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "setattr", "hasattr")
        and isinstance(node.args[1], ast.Constant)
    ]
    assert found == []

"""Audit and twin capture: silent on a right engine, and each clause has a planted break that they name."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from graphcheck.engine.audit import Breach
from graphcheck.engine.contract import INPUTS
from graphcheck.engine.graph_runner import GraphRunner
from graphcheck.engine.request import Request
from graphcheck.engine.step import StepProgram
from graphcheck.engine.step_io import StepInputs, StepOutputs
from tests.engine.conftest import EngineMaker
from tests.engine.outputs import random_requests, run_engine

VOCAB = 211


def ending_one_by_one(count: int) -> list[Request]:
    """Requests that all start at once and end one step after the other, so that buckets have spare lanes."""
    requests = random_requests(count, vocab=VOCAB)
    return [
        Request(**{**vars(request), "arrival": 0, "max_new_tokens": count + number})
        for number, request in enumerate(requests)
    ]


def audited(make_engine: EngineMaker, fixes_off: tuple[str, ...] = (), **settings: int | str) -> tuple[Breach, ...]:
    # One bucket, because an audited capture takes its time.
    engine = make_engine(graph="on", audit="on", buckets="8", fixes_off=fixes_off, **settings)
    run_engine(engine, ending_one_by_one(8))
    breaches = engine.counters().breaches
    assert breaches is not None
    return breaches


@pytest.mark.parametrize("kv", ["paged", "static"])
def test_right_engine_has_no_breach_and_the_audit_changes_no_bit(make_engine: EngineMaker, kv: str) -> None:
    requests = random_requests(9, vocab=VOCAB)
    plain = make_engine(graph="on", logits="digest", kv=kv)
    watched = make_engine(graph="on", logits="digest", kv=kv, audit="on")
    before, after = run_engine(plain, requests), run_engine(watched, requests)
    assert watched.counters().breaches == ()
    assert [step.logits_sha for step in after.steps] == [step.logits_sha for step in before.steps]
    assert plain.counters().breaches is None


@pytest.mark.parametrize("kv", ["paged", "static"])
def test_eager_step_between_audited_replays_is_not_poisoned(make_engine: EngineMaker, kv: str) -> None:
    requests = [
        Request(**{**vars(request), "arrival": 2 * number, "max_new_tokens": 24})
        for number, request in enumerate(random_requests(12, vocab=VOCAB))
    ]
    settings: dict[str, int | str] = {"graph": "on", "logits": "digest", "kv": kv, "lanes": 12, "buckets": "4"}
    plain, watched = make_engine(**settings), make_engine(**settings, audit="on")
    before, after = run_engine(plain, requests), run_engine(watched, requests)
    replayed = [step.replayed for step in after.steps if step.phase == "decode"]
    assert (True, False) in set(pairwise(replayed)), "eager follows a replay"
    assert [step.logits_sha for step in after.steps] == [step.logits_sha for step in before.steps]


BROKEN_BUFFERS = {
    "metadata-refresh": ("contents", {"positions", "seq_lens", "slot_mapping", "block_tables"}),
    "pad-clear": ("tail", {"positions", "seq_lens", "slot_mapping", "block_tables", "token_ids"}),
    "stable-buffers": (
        "identity",
        {"positions", "seq_lens", "slot_mapping", "block_tables", "token_ids", "force_mask", "forced_ids"},
    ),
}


@pytest.mark.parametrize("fix", BROKEN_BUFFERS)
def test_audit_names_clause_and_buffers_of_the_missing_fix(make_engine: EngineMaker, fix: str) -> None:
    clause, buffers = BROKEN_BUFFERS[fix]
    breaches = audited(make_engine, (fix,))
    assert {breach.buffer for breach in breaches if breach.clause == clause} == buffers
    assert not any("FROZEN" in breach.detail for breach in breaches)


def test_twin_capture_names_what_the_host_froze_and_the_buffers_are_clean(make_engine: EngineMaker) -> None:
    breaches = audited(make_engine, ("device-metadata",))
    frozen = [breach for breach in breaches if breach.clause == "residency"]
    assert frozen
    assert "aten.full" in frozen[0].detail
    assert "step.py" in frozen[0].detail
    assert "1 -> 16" in frozen[0].detail
    assert all(breach.replay == 0 for breach in frozen)
    assert not [breach for breach in breaches if breach.clause in ("contents", "identity")]


@pytest.mark.parametrize(
    ("name", "kv"),
    [*((spec.name, "paged") for spec in INPUTS), ("block_tables", "static")],
    ids=lambda value: str(value),
)
def test_any_input_that_a_captured_step_takes_from_the_host_is_named(
    make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch, name: str, kv: str
) -> None:
    decode = StepProgram.decode

    def decode_with_fills(self: StepProgram, inputs: StepInputs, outputs: StepOutputs) -> None:
        values, dtype = getattr(self._mirror.batch, name), getattr(inputs, name).dtype
        filled = torch.cat([torch.full((1,), value, dtype=dtype) for value in values.flatten().tolist()])
        decode(self, replace(inputs, **{name: filled.view(values.shape)}), outputs)

    monkeypatch.setattr(StepProgram, "decode", decode_with_fills)
    breaches = make_engine(graph="on", audit="on", lanes=2, buckets="2", kv=kv).counters().breaches
    assert breaches
    assert {(breach.clause, breach.buffer) for breach in breaches} == {("residency", "aten.full.default")}
    assert all("FROZEN" in breach.detail and "test_audit.py" in breach.detail for breach in breaches)


def test_audited_capture_leaves_the_same_values_behind_as_any_other(make_engine: EngineMaker) -> None:
    runner = make_engine(graph="on", audit="on", lanes=2, buckets="1,2").runner
    assert runner is not None
    assert all((getattr(runner.inputs, spec.name) == spec.fill).all() for spec in INPUTS)


def test_stale_spare_lane_that_writes_into_a_live_page_is_named(
    make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(graph="on", audit="on", lanes=4, buckets="4")
    prepare = GraphRunner.prepare

    def prepare_and_stray(self: GraphRunner, batch: object) -> None:
        prepare(self, batch)
        self.inputs.slot_mapping[3] = 17

    monkeypatch.setattr(GraphRunner, "prepare", prepare_and_stray)
    run_engine(engine, random_requests(2, vocab=VOCAB))
    breaches = engine.counters().breaches or ()
    assert ("tail", "kv_cache.keys") in {(breach.clause, breach.buffer) for breach in breaches}
    assert "slot 17" in next(breach.detail for breach in breaches if breach.buffer == "kv_cache.keys")


def test_read_past_the_length_of_a_sequence_shows_in_the_logits(
    make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fresh memory is zero and hides the read; the audit's poison does not."""
    requests = random_requests(3, vocab=VOCAB)
    expected = run_engine(make_engine(graph="on"), requests).tokens
    engine = make_engine(graph="on", audit="on", lanes=4, buckets="4")
    prepare = GraphRunner.prepare

    def one_too_long(self: GraphRunner, batch: object) -> None:
        prepare(self, batch)
        self.inputs.seq_lens.add_(1)

    monkeypatch.setattr(GraphRunner, "prepare", one_too_long)
    assert run_engine(engine, requests).tokens != expected


def test_intermediate_that_a_replay_does_not_write_is_poisoned(make_engine: EngineMaker) -> None:
    engine = make_engine(graph="on", audit="on", buckets="8")
    assert engine.runner is not None
    graph = next(iter(engine.runner._graphs.values()))
    victim = graph.labels.index("aten._softmax.default")
    graph._nodes[victim] = lambda: None
    steps = run_engine(engine, random_requests(8, vocab=VOCAB)).steps
    assert not all(all(step.finite) for step in steps if step.replayed)
    assert torch.isnan(engine.parts.buffers.outputs.logits[:8, :VOCAB]).any()

"""Real rank processes: bit-identical logits over TP and graphs, the hang that an unwaited collective causes."""

from pathlib import Path

import pytest

from graphcheck.engine.request import Request
from graphcheck.schema.events import StepEvent
from graphcheck.targets.bundled.session import _OUTERMOST_FRAME
from graphcheck.targets.bundled.target import BundledTarget
from tests.engine.outputs import random_requests, run_attempt

VOCAB = 211
CELLS = [(tp, graph) for tp in (1, 2, 4) for graph in ("off", "on")]


def logits_by_token(steps: list[StepEvent], rank: int) -> dict[tuple[str, int], str]:
    """(request, output index) -> sha256 of the logits that chose it."""
    return {
        (request, index): sha
        for step in steps
        if step.rank == rank
        for request, index, sha in zip(step.requests, step.index, step.logits_sha or (), strict=True)
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_are_bit_identical_over_ranks_tp_and_graphs(
    target: BundledTarget, tiny: Path, tmp_path: Path, dtype: str
) -> None:
    requests = random_requests(10, vocab=VOCAB)
    expected: dict[tuple[str, int], str] = {}
    for tp, graph in CELLS:
        settings: dict[str, int | str] = {"tp": tp, "graph": graph, "dtype": dtype, "logits": "digest"}
        facts, steps = run_attempt(target, tiny, requests, tmp_path / f"{tp}{graph}", **settings)
        assert facts.stall is None
        assert not facts.errors
        for rank, evidence in facts.evidence.items():
            decode_steps = sum((step.rank, step.phase) == (rank, "decode") for step in steps)
            assert evidence.replays == (decode_steps if graph == "on" else 0)
        for rank in range(tp):
            logits = logits_by_token(steps, rank)
            expected = expected or logits
            assert logits == expected, f"logits of rank {rank} differ at tp={tp}, graph={graph}"
    assert len(expected) == 10 * 12


@pytest.mark.parametrize("graph", ["off", "on"])
def test_unwaited_collective_parts_the_ranks_and_hangs(
    target: BundledTarget, tiny: Path, tmp_path: Path, graph: str
) -> None:
    requests = random_requests(10, vocab=VOCAB)
    stops = tuple(range(0, VOCAB, 4))
    facts, steps = run_attempt(
        target,
        tiny,
        [Request(**{**vars(request), "stop_ids": stops}) for request in requests],
        tmp_path,
        fixes_off=("allreduce-sync",),
        tp=2,
        graph=graph,
    )
    assert facts.stall is not None
    assert facts.stall.kind == "hang"
    assert facts.stall.stalled_seconds < facts.stall.limit_seconds + 1.0
    last_tags = {journal.tags[-1] for journal in facts.stall.journals}
    assert len({tag.number for tag in last_tags}) == 1, "the ranks wait for each other at the same collective"
    assert len({tag.rows for tag in last_tags}) > 1, "because their batches have parted"
    assert all(journal.waiting == "wait_for_peers" for journal in facts.stall.journals)
    assert all("in wait_for_peers" in facts.stall.stacks[rank] for rank in range(2))
    assert all(facts.stall.stacks[rank].endswith(_OUTERMOST_FRAME) for rank in range(2)), "whole, or they look moved"
    assert len({step.ids for step in steps if (step.step, step.phase) == (0, "prefill")}) > 1


def test_ranks_leave_nothing_behind(target: BundledTarget, tiny: Path, tmp_path: Path) -> None:
    facts, _ = run_attempt(target, tiny, random_requests(2, vocab=VOCAB), tmp_path, tp=2, graph="on")
    assert [(event.status, event.signal) for event in facts.exits] == [(0, None), (0, None)]
    assert not list(Path("/dev/shm").glob("*graphcheck*"))
    assert (tmp_path / "rank0.log").read_text() == ""


def test_rank_that_cannot_load_reports_its_error(target: BundledTarget, tmp_path: Path) -> None:
    facts, steps = run_attempt(target, tmp_path / "nowhere", [Request("r", (1,))], tmp_path / "out", tp=2)
    assert not steps
    causes = [error for error in facts.errors if not error.consequence]
    assert {error.error for error in causes} == {"CheckpointError"}
    assert all("give a checkpoint folder" in error.message for error in causes)
    assert "Traceback" in (tmp_path / "out" / "rank0.log").read_text(), "the log that a report points to tells it too"


def test_a_rank_that_asks_for_more_memory_than_there_is_runs_out_of_it_and_does_not_crash(
    target: BundledTarget, tiny: Path, tmp_path: Path
) -> None:
    facts, _ = run_attempt(target, tiny, random_requests(1, vocab=VOCAB), tmp_path, num_pages=900_000_000)
    assert [(error.kind, error.phase) for error in facts.errors] == [("oom", "load")]


def test_audit_names_every_collective_that_is_not_waited_for(target: BundledTarget, tiny: Path, tmp_path: Path) -> None:
    """Visibility is seen at capture, before any token is wrong; without stop ids nothing hangs."""
    requests = random_requests(3, vocab=VOCAB)
    settings: dict[str, int | str] = {"tp": 2, "graph": "on", "audit": "on", "buckets": "4", "lanes": 4}
    clean, _ = run_attempt(target, tiny, requests, tmp_path / "clean", **settings)
    assert [evidence.audit for evidence in clean.evidence.values()] == [(), ()]
    broken, _ = run_attempt(target, tiny, requests, tmp_path / "broken", ("allreduce-sync",), **settings)
    sites = {f"layers.{layer}.{part}.reduce" for layer in (0, 1) for part in ("o_proj", "down_proj")}
    for evidence in broken.evidence.values():
        found = {finding.buffer for finding in evidence.audit or () if finding.clause == "visibility"}
        assert found == sites | {"lm_head.gather"}


def test_seconds_of_a_phase_add_up_over_all_its_stretches(target: BundledTarget, tiny: Path, tmp_path: Path) -> None:
    """Prefill and decode alternate; the evidence once held the last stretch of the current phase alone."""
    facts, steps = run_attempt(target, tiny, random_requests(8, vocab=VOCAB), tmp_path)
    for phase in ("prefill", "decode"):
        in_steps = sum(step.seconds or 0.0 for step in steps if step.phase == phase)
        assert facts.evidence[0].seconds[phase] >= in_steps

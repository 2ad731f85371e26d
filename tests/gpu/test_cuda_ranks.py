"""The engine on real GPUs: bit-identical logits over TP and CUDA graphs, fixes that break it, and clean exits."""

from pathlib import Path

import pytest

from graphcheck.engine.request import Request
from graphcheck.schema.events import StepEvent
from graphcheck.targets.bundled.target import BundledTarget
from tests.engine.outputs import random_requests, run_attempt
from tests.engine.test_ranks import logits_by_token
from tests.gpu.conftest import Needs

pytestmark = pytest.mark.gpu

VOCAB = 211
CUDA = {"device": "cuda", "allreduce": "nccl"}


def tokens(steps: list[StepEvent], rank: int = 0) -> dict[str, list[int]]:
    answers: dict[str, list[int]] = {}
    for step in steps:
        if step.rank == rank:
            for request, token in zip(step.requests, step.ids, strict=True):
                answers.setdefault(request, []).append(token)
    return answers


@pytest.mark.parametrize("kv", ["paged", "static"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_are_bit_identical_over_tp_and_cuda_graphs(
    needs: Needs,
    target: BundledTarget,
    tiny: Path,
    tmp_path: Path,
    dtype: str,
    kv: str,
) -> None:
    needs(1)
    requests = random_requests(10, vocab=VOCAB)
    expected: dict[tuple[str, int], str] = {}
    for tp in (1, 2):
        if tp == 2:
            needs(2)
        for graph in ("off", "on"):
            settings: dict[str, int | str] = {"tp": tp, "graph": graph, "dtype": dtype, "kv": kv, "logits": "digest"}
            facts, steps = run_attempt(target, tiny, requests, tmp_path / f"{tp}{graph}", **CUDA, **settings)
            assert not facts.errors, facts.errors[0].traceback
            assert facts.stall is None
            assert [(event.status, event.signal) for event in facts.exits] == [(0, None)] * tp
            for rank in range(tp):
                evidence = facts.evidence[rank]
                assert (evidence.backend.graph, evidence.replays != 0) == (
                    ("cuda", True) if graph == "on" else (None, False)
                )
                logits = logits_by_token(steps, rank)
                expected = expected or logits
                assert logits == expected, f"logits of rank {rank} differ at tp={tp}, graph={graph}"
    assert len(expected) == 10 * 12


@pytest.mark.parametrize("fix", ["device-metadata", "metadata-refresh", "stable-buffers"])
def test_without_the_fix_replay_is_wrong_and_eager_is_right(
    needs: Needs,
    target: BundledTarget,
    tiny: Path,
    tmp_path: Path,
    fix: str,
) -> None:
    needs(1)
    requests = random_requests(8, vocab=VOCAB)
    _, right = run_attempt(target, tiny, requests, tmp_path / "right", **CUDA)
    _, eager = run_attempt(target, tiny, requests, tmp_path / "eager", (fix,), **CUDA)
    assert tokens(eager) == tokens(right)
    facts, replayed = run_attempt(target, tiny, requests, tmp_path / "replayed", (fix,), graph="on", **CUDA)
    wrong = tokens(replayed)
    assert facts.errors or all(wrong[request] != answer for request, answer in tokens(right).items())


@pytest.mark.parametrize("graph", ["off", "on"])
def test_unwaited_collective_hangs_or_is_wrong(
    needs: Needs,
    target: BundledTarget,
    tiny: Path,
    tmp_path: Path,
    graph: str,
) -> None:
    needs(2)
    stops = tuple(range(0, VOCAB, 4))
    requests = [Request(**{**vars(request), "stop_ids": stops}) for request in random_requests(10, vocab=VOCAB)]
    settings: dict[str, int | str] = {"tp": 2, "graph": graph, **CUDA}
    _, right = run_attempt(target, tiny, requests, tmp_path / "right", **settings)
    facts, wrong = run_attempt(target, tiny, requests, tmp_path / "wrong", ("allreduce-sync",), **settings)
    hung = facts.stall is not None and facts.stall.kind == "hang"
    assert hung or any(tokens(wrong, rank) != tokens(right, rank) for rank in range(2))


def test_audit_is_silent_on_a_right_engine(
    needs: Needs,
    target: BundledTarget,
    tiny: Path,
    tmp_path: Path,
) -> None:
    needs(1)
    facts, _ = run_attempt(target, tiny, random_requests(8, vocab=VOCAB), tmp_path, graph="on", audit="on", **CUDA)
    assert not facts.errors
    assert facts.evidence[0].audit == ()

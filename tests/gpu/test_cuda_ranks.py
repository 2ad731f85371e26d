"""The engine on real GPUs: bit-identical logits over TP and CUDA graphs, fixes that break it, and clean exits."""

from pathlib import Path

import pytest

from graphcheck.engine.request import Request
from graphcheck.schema.attempt import Delay
from graphcheck.schema.events import StepEvent
from graphcheck.targets.bundled.target import BundledTarget
from tests.engine.outputs import random_requests, run_attempt
from tests.engine.test_ranks import logits_by_token
from tests.gpu.conftest import Needs

pytestmark = pytest.mark.gpu

VOCAB = 211
CUDA = {"device": "cuda", "allreduce": "nccl"}
SHARED = {"device": "cuda", "allreduce": "symm", "share_gpus": "on"}


def tokens(steps: list[StepEvent], rank: int = 0) -> dict[str, list[int]]:
    answers: dict[str, list[int]] = {}
    for step in steps:
        if step.rank == rank:
            for request, token in zip(step.requests, step.ids, strict=True):
                answers.setdefault(request, []).append(token)
    return answers


def check_bits(
    target: BundledTarget, tiny: Path, tmp_path: Path, sizes: tuple[int, ...], **settings: int | str
) -> None:
    """Every row of logits is the same on every rank of every TP size, with graphs off and on."""
    requests = random_requests(10, vocab=VOCAB)
    expected: dict[tuple[str, int], str] = {}
    for tp in sizes:
        for graph in ("off", "on"):
            cell: dict[str, int | str] = {"tp": tp, "graph": graph, "logits": "digest", **settings}
            facts, steps = run_attempt(target, tiny, requests, tmp_path / f"{tp}{graph}", **cell)
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


@pytest.mark.parametrize("attention", ["gather", "triton"])
@pytest.mark.parametrize("kv", ["paged", "static"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_are_bit_identical_over_tp_and_cuda_graphs(
    needs: Needs, target: BundledTarget, tiny: Path, tmp_path: Path, dtype: str, kv: str, attention: str
) -> None:
    needs(2)
    check_bits(target, tiny, tmp_path, (1, 2), dtype=dtype, kv=kv, attention=attention, **CUDA)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_are_bit_identical_when_ranks_share_a_gpu(
    needs: Needs, target: BundledTarget, tiny: Path, tmp_path: Path, dtype: str
) -> None:
    needs(1)
    check_bits(target, tiny, tmp_path, (1, 2, 4), dtype=dtype, **SHARED)


def test_sums_by_the_one_shot_all_reduce_give_the_same_tokens(
    needs: Needs, target: BundledTarget, tiny: Path, tmp_path: Path
) -> None:
    needs(1)
    requests = random_requests(8, vocab=VOCAB)
    _, right = run_attempt(target, tiny, requests, tmp_path / "right", **CUDA)
    for graph in ("off", "on"):
        settings: dict[str, int | str] = {"tp": 2, "graph": graph, "numerics": "fast", **SHARED}
        facts, steps = run_attempt(target, tiny, requests, tmp_path / graph, **settings)
        assert not facts.errors, facts.errors[0].traceback
        assert [tokens(steps, rank) for rank in range(2)] == [tokens(right)] * 2


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


@pytest.mark.parametrize(
    ("num_gpus_needed", "settings"),
    [
        (1, {"tp": 1, **CUDA}),
        (1, {"tp": 1, "attention": "triton", **CUDA}),
        (1, {"tp": 2, **SHARED}),
        (2, {"tp": 2, **CUDA}),
    ],
    ids=["gather", "triton", "symm", "nccl"],
)
def test_audit_is_silent_on_a_right_engine_and_changes_no_bit(
    needs: Needs,
    target: BundledTarget,
    tiny: Path,
    tmp_path: Path,
    num_gpus_needed: int,
    settings: dict[str, int | str],
) -> None:
    needs(num_gpus_needed)
    requests = random_requests(8, vocab=VOCAB)
    plain, bare = run_attempt(target, tiny, requests, tmp_path / "plain", graph="on", logits="digest", **settings)
    facts, watched = run_attempt(target, tiny, requests, tmp_path / "audit", graph="on", audit="on", **settings)
    assert not facts.errors, facts.errors[0].traceback
    for rank in range(int(settings["tp"])):
        assert (plain.evidence[rank].audit, facts.evidence[rank].audit) == (None, ())
        assert logits_by_token(watched, rank) == logits_by_token(bare, rank)


@pytest.mark.parametrize("attention", ["gather", "triton"])
def test_audit_names_what_a_cuda_graph_has_frozen(
    needs: Needs, target: BundledTarget, tiny: Path, tmp_path: Path, attention: str
) -> None:
    needs(1)
    settings: dict[str, int | str] = {"graph": "on", "audit": "on", "attention": attention, **CUDA}
    facts, _ = run_attempt(target, tiny, random_requests(4, vocab=VOCAB), tmp_path, ("device-metadata",), **settings)
    frozen = [breach for breach in facts.evidence[0].audit or () if breach.clause == "residency"]
    assert frozen
    assert {(breach.buffer, breach.replay) for breach in frozen} == {("aten.full.default", 0)}
    assert all("FROZEN" in breach.detail and "step.py" in breach.detail for breach in frozen)


@pytest.mark.parametrize(("num_gpus_needed", "settings"), [(1, SHARED), (2, CUDA)], ids=["symm", "nccl"])
def test_audit_names_a_collective_that_a_cuda_graph_does_not_wait_for(
    needs: Needs,
    target: BundledTarget,
    tiny: Path,
    tmp_path: Path,
    num_gpus_needed: int,
    settings: dict[str, int | str],
) -> None:
    """No request has a stop id: ranks that choose other tokens go on in step, and nothing hangs."""
    needs(num_gpus_needed)
    asked: dict[str, int | str] = {"tp": 2, "graph": "on", "audit": "on", **settings}
    facts, _ = run_attempt(target, tiny, random_requests(4, vocab=VOCAB), tmp_path, ("allreduce-sync",), **asked)
    assert not facts.errors, facts.errors[0].traceback
    for rank in range(2):
        breaches = facts.evidence[rank].audit or ()
        assert {breach.clause for breach in breaches} == {"visibility"}
        assert {"layers.0.o_proj.reduce", "lm_head.gather"} <= {breach.buffer for breach in breaches}


def test_hang_inside_a_replay_is_put_down_to_a_collective_by_breadcrumbs(
    needs: Needs, target: BundledTarget, tiny: Path, tmp_path: Path
) -> None:
    needs(2)
    stops = tuple(range(0, VOCAB, 4))
    requests = [Request(**{**vars(request), "stop_ids": stops}) for request in random_requests(10, vocab=VOCAB)]
    settings: dict[str, int | str] = {"tp": 2, "graph": "on", **CUDA}
    facts, _ = run_attempt(target, tiny, requests, tmp_path, ("allreduce-sync",), **settings)
    assert facts.stall is not None
    trails = [journal.trail for journal in facts.stall.journals if not journal.finished]
    assert trails
    assert all(trail is not None and trail.inside is not None and not trail.is_over for trail in trails)
    assert any(trail is not None and trail.replay is not None for trail in trails)


@pytest.mark.parametrize("graph", ["off", "on"])
def test_delay_makes_every_step_late_on_the_device_and_neither_capture_nor_a_token(
    needs: Needs, target: BundledTarget, tiny: Path, tmp_path: Path, graph: str
) -> None:
    needs(1)
    requests = random_requests(4, vocab=VOCAB)
    late = (Delay(rank=0, site="layers.1.o_proj.reduce", ms=40),)
    _, right = run_attempt(target, tiny, requests, tmp_path / "right", graph=graph, **CUDA)
    _, steps = run_attempt(target, tiny, requests, tmp_path / "late", delays=late, graph=graph, **CUDA)
    assert tokens(steps) == tokens(right)
    assert min(step.seconds or 0.0 for step in steps) >= 0.04
    assert sorted(step.seconds or 0.0 for step in right)[len(right) // 2] < 0.04


def test_breadcrumbs_change_no_bit(needs: Needs, target: BundledTarget, tiny: Path, tmp_path: Path) -> None:
    needs(1)
    requests = random_requests(8, vocab=VOCAB)
    logits = []
    for breadcrumbs in ("off", "on"):
        settings: dict[str, int | str] = {"graph": "on", "logits": "digest", "breadcrumbs": breadcrumbs, **CUDA}
        _, steps = run_attempt(target, tiny, requests, tmp_path / breadcrumbs, **settings)
        logits.append(logits_by_token(steps, 0))
    assert logits[0] == logits[1]

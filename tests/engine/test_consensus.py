"""Ranks that took different tokens: an error that names the step, in place of the hang that would follow."""

from pathlib import Path

import pytest

from graphcheck.engine.consensus import Consensus, _digest
from graphcheck.engine.errors import ConsensusError
from graphcheck.engine.journal import JournalMemory
from graphcheck.engine.request import Request
from graphcheck.engine.scheduler import Step
from graphcheck.targets.bundled.target import BundledTarget
from tests.engine.outputs import random_requests, run_attempt

VOCAB = 211


@pytest.mark.parametrize("graph", ["off", "on"])
def test_what_would_hang_is_an_error_that_names_the_step(
    target: BundledTarget, tiny: Path, tmp_path: Path, graph: str
) -> None:
    stops = tuple(range(0, VOCAB, 4))
    requests = [Request(**{**vars(one), "stop_ids": stops}) for one in random_requests(10, vocab=VOCAB)]
    facts, steps = run_attempt(
        target, tiny, requests, tmp_path, fixes_off=("allreduce-sync",), tp=2, graph=graph, consensus="on"
    )
    assert facts.stall is None
    assert {(error.rank, error.error) for error in facts.errors} == {(0, "ConsensusError"), (1, "ConsensusError")}
    by_rank = [{step.step: step for step in steps if step.rank == rank} for rank in range(2)]
    first = next(number for number, step in sorted(by_rank[0].items()) if step.ids != by_rank[1][number].ids)
    assert max(by_rank[0]) == max(by_rank[1]) == first, "no rank goes on"
    for error in facts.errors:
        mine = by_rank[error.rank][first]
        assert error.message.startswith(
            f"{mine.phase} step {first}: rank {error.rank} took {list(mine.ids)}, rank {1 - error.rank} took others; "
        )


def test_ranks_that_agree_give_the_same_tokens_with_it(target: BundledTarget, tiny: Path, tmp_path: Path) -> None:
    requests = random_requests(6, vocab=VOCAB)
    bare = run_attempt(target, tiny, requests, tmp_path / "off", tp=2, graph="on")[1]
    facts, steps = run_attempt(target, tiny, requests, tmp_path / "on", tp=2, graph="on", consensus="on")
    assert (facts.stall, facts.errors) == (None, ())
    for rank in range(2):
        assert [step.ids for step in steps if step.rank == rank] == [step.ids for step in bare if step.rank == rank]


def test_a_peer_that_took_the_same_tokens_in_an_earlier_step_does_not_agree() -> None:
    memory, _ = JournalMemory.create(2)
    mine, peer = Consensus(memory.writer(0), rank=0, tp=2), memory.writer(1)
    first, second = (Step(number, "decode", ()) for number in (1, 2))
    peer.vote(_digest(first, [7]))
    peer.vote(_digest(first, [7]))  # one ahead, as far as a peer can be
    mine.agree(first, [7])
    with pytest.raises(ConsensusError, match=r"decode step 2: rank 0 took \[7\], rank 1 took others; "):
        mine.agree(second, [7])

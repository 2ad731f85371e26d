"""A rank that dies, raises, stops or writes garbage, in each phase of its life: its verdict, its place, one line."""

import pytest

from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.fake_rank import STRIKES
from tests.fake_world import FakeWorld

FAULTS = {
    "signal": (Verdict.CRASH, 4, "rank 1 was killed by SIGSEGV"),
    "raise": (Verdict.CRASH, 4, "rank 1"),
    "garbage": (Verdict.CRASH, 4, "rank 1"),
    "hang_one_rank": (Verdict.HANG, 3, "rank 1 stood still"),
}


@pytest.mark.parametrize("phase", STRIKES)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_befalls_one_rank_is_told_with_its_phase(fault: str, phase: str, fake_world: FakeWorld) -> None:
    verdict, code, reason = FAULTS[fault]
    matrix = fake_world.matrix(settings={"tp": 2, "graph": "on", "strikes": phase}, fault=[fault, "none"])
    run, ended = fake_world.run(matrix)
    struck, other = (attempt.finished for attempt in run.attempts)
    assert struck is not None
    assert other is not None
    assert (struck.verdict, other.verdict, ended) == (verdict, Verdict.PASS, code), struck.reason
    assert struck.reason.startswith(reason)
    assert "\n" not in struck.reason
    if struck.facts.stall is not None:
        assert struck.facts.stall.phase == phase
    if fault in ("raise", "garbage"):
        assert [error.phase for error in struck.facts.errors if not error.consequence] == [phase]

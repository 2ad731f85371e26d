"""A table of planted faults: the outcome, verdict, first step and locus that each must come out as, none left out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from graphcheck.harness.judging.locus import loci
from graphcheck.harness.records.rejudge import contradictions
from graphcheck.harness.records.run_folder import Run
from graphcheck.schema.attempt import Attempt
from graphcheck.schema.run import PromptResult
from graphcheck.schema.verdicts import Outcome, Verdict
from tests.fake_ablation import ablate_in, scripted
from tests.fake_world import PROMPTS, FakeWorld, write_golden_of
from tests.near_ties import calibrated, make_unsure


@dataclass(frozen=True)
class Row:
    """What is planted, and what the first prompt of the one cell must come out as; `step` counts its tokens from 0."""

    outcome: Outcome | None
    verdict: Verdict
    step: int | None = None
    fault: str = "none"
    graph: str = "on"
    detail: str = ""
    settings: dict[str, object] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[FakeWorld], object] = lambda world: None


def unsure(world: FakeWorld) -> None:
    make_unsure(world)
    calibrated(world, world.matrix(graph=["on"], settings={"fault": "drift"}))


def other_golden(world: FakeWorld) -> None:
    write_golden_of(world)
    (world.path / "toy" / "model.safetensors").write_bytes(b"other weights")


LENGTH = PROMPTS["one"][1]
ROWS: dict[str, Row] = {
    "nothing": Row(Outcome.EXACT, Verdict.PASS),
    "one wrong token": Row(Outcome.DRIFT, Verdict.TOKENS, 1, "drift", detail="1 of 12 forced steps wrong"),
    "all wrong from the third on": Row(Outcome.DRIFT, Verdict.TOKENS, 2, "derail", detail="1 of 12 forced steps wrong"),
    "all wrong": Row(Outcome.CORRUPT, Verdict.TOKENS, 1, "corrupt", detail="11 of 12 forced steps wrong"),
    "one token for ever": Row(Outcome.COLLAPSE, Verdict.TOKENS, 1, "repeat", detail="for ever"),
    "no number": Row(Outcome.COLLAPSE, Verdict.TOKENS, 1, "not_finite", detail="logits were not finite"),
    "two tokens for ever": Row(Outcome.LOOP, Verdict.TOKENS, 1, "loop", detail="a loop of 2 that fills 32 tokens"),
    "an early end": Row(Outcome.LENGTH, Verdict.TOKENS, LENGTH - 1, "short", detail="early end: 11 tokens instead of"),
    "a late end": Row(Outcome.LENGTH, Verdict.TOKENS, LENGTH, "long", detail="late end: 14 tokens instead of 12"),
    "a wrong word for the end": Row(
        Outcome.LENGTH, Verdict.TOKENS, LENGTH, "wrong_end", detail="said to end by stop after 12 tokens, but its 12"
    ),
    "two answers all but level": Row(
        Outcome.NEAR_TIE, Verdict.PASS, 1, "drift", detail="1 of 12 steps", prepare=unsure
    ),
    "no answer": Row(Outcome.MISSING, Verdict.ERROR, None, "missing"),
    "a refused request": Row(Outcome.ERROR, Verdict.ERROR, None, "request_error"),
    "ranks whose logits part": Row(Outcome.EXACT, Verdict.ERROR, None, "split", settings={"tp": 2, "logits": "digest"}),
    "a breach that the audit sees": Row(Outcome.EXACT, Verdict.ERROR, None, "breach"),
    "a hang": Row(Outcome.LENGTH, Verdict.HANG, 3, "hang"),
    "no progress": Row(Outcome.LENGTH, Verdict.TIMEOUT, 3, "churn"),
    "a death": Row(Outcome.LENGTH, Verdict.CRASH, 3, "signal"),
    "no memory": Row(Outcome.LENGTH, Verdict.OOM, 0, "oom", settings={"tp": 2}),
    "no replay": Row(Outcome.EXACT, Verdict.VACUOUS, None, "no_replay"),
    "no witness": Row(Outcome.EXACT, Verdict.UNWITNESSED, None, "unwitnessed"),
    "another answer now and then": Row(Outcome.DRIFT, Verdict.FLAKY, 1, "flaky", request={"repeats": 3}),
    "no device": Row(None, Verdict.SKIPPED, settings={"device": "cuda"}),
    "no golden": Row(None, Verdict.MISSING, prepare=lambda world: world.golden_file.unlink()),
    "another model's golden": Row(None, Verdict.STALE, prepare=other_golden),
}
BUILT_ELSEWHERE = {Verdict.LEAK}
"""Its planted cases are in test_leak.py: it takes GPUs that can be read."""


def test_the_table_leaves_no_outcome_and_no_verdict_out() -> None:
    assert {row.outcome for row in ROWS.values()} == {*Outcome, None}
    assert {row.verdict for row in ROWS.values()} == set(Verdict) - BUILT_ELSEWHERE


@pytest.mark.parametrize("name", ROWS)
def test_what_is_planted_is_what_is_told(name: str, fake_world: FakeWorld) -> None:
    row = ROWS[name]
    row.prepare(fake_world)
    matrix = fake_world.matrix(graph=[row.graph], settings={"fault": row.fault, **row.settings})
    run, _ = fake_world.run(matrix, gives_forced=True, run_dir=Path("planted"), **row.request)
    (attempt,) = run.attempts
    assert attempt.finished is not None
    first = next(iter(attempt.finished.prompts), None)
    got = (first.outcome if first else None, attempt.finished.verdict, first.step if first else None)
    assert got == (row.outcome, row.verdict, row.step), attempt.finished.reason
    assert row.detail in (first.detail if first else "")
    assert list(contradictions(run)) == []


def test_a_difference_is_told_with_all_that_places_it(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[2], graph=["on"], settings={"fault": "one_rank"})
    (attempt,) = fake_world.run(matrix)[0].attempts
    assert attempt.finished is not None
    place: PromptResult = attempt.finished.prompts[0]
    assert (place.rank, place.step, place.engine_step, place.lane, place.bucket, place.live) == (1, 1, 4, 0, 4, 3)
    assert place.margin == 2.5
    assert place.margin_ulp == 2.5 * 2**21


CORNERS = {"1off": (1, "off"), "1on": (1, "on"), "2off": (2, "off"), "2on": (2, "on")}
LOCI = {
    "graph": {"1on", "2on"},
    "tp": {"2off", "2on"},
    "tp x graph": {"2on"},
    "graph + tp": {"1on", "2off", "2on"},
    "everywhere": {"1off", "1on", "2off", "2on"},
    "mixed": {"1on"},
}


def planted_in(red: set[str], world: FakeWorld) -> Run:
    """The four corners with a fault in these."""
    places = {CORNERS[corner] for corner in red}

    def fault(attempt: Attempt) -> str:
        return "drift" if (attempt.cell.axes["tp"], attempt.cell.axes["graph"]) in places else "none"

    everywhere = {"tp": (1, 2)}
    fix = scripted(fault, Verdict.TOKENS, where=everywhere)
    return ablate_in(world, world.matrix(tp=[1, 2], graph=["off", "on"]), fix).run


@pytest.mark.parametrize("name", LOCI)
def test_a_fault_in_some_corners_has_their_locus(name: str, fake_world: FakeWorld) -> None:
    run = planted_in(LOCI[name], fake_world)
    trials = [attempt for attempt in run.attempts if attempt.started.attempt.fixes_off]
    assert [locus.name for locus in loci(trials)] == [name]

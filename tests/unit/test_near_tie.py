"""What a near tie is: its units, every condition of the rule, and what a cell may have of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from graphcheck.harness.judging.case import Forced
from graphcheck.harness.judging.judge import judge
from graphcheck.harness.judging.near_tie import TieRule, margin_ulp, near_ties, ulp
from graphcheck.harness.judging.near_tie_budget import over_budget
from graphcheck.harness.judging.rates import ALPHA, excess
from graphcheck.harness.judging.transcript import Token, Transcript
from graphcheck.harness.records.rejudge import rejudged
from graphcheck.harness.records.run_folder import Run
from graphcheck.report.explain import brief, explain
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.events import StepEvent
from graphcheck.schema.evidence import Evidence
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.golden import Calibration, GoldenPrompt, GoldenStep
from graphcheck.schema.matrix import Policy
from graphcheck.schema.run import AttemptFacts, AttemptFinished, AttemptStarted
from graphcheck.schema.suite import Request, Workload
from graphcheck.schema.verdicts import Outcome, Verdict
from tests.fake_ablation import ablate_in, scripted
from tests.fake_world import FakeWorld
from tests.goldens import golden_of
from tests.near_ties import MARGIN_ULP, PROMPT, STEP, calibrated, make_unsure

RULE = TieRule("bfloat16", bound=2.0)
UNIT = 0.125
"""ULP of bfloat16 from 16 to 32."""


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1.0, "float32", 2.0**-23),
        (1.0, "bfloat16", 2.0**-7),
        (1.0, "float16", 2.0**-10),
        (16.0, "bfloat16", UNIT),
        (31.9, "bfloat16", UNIT),
        (32.0, "bfloat16", 2 * UNIT),
        (-20.0, "bfloat16", UNIT),
    ],
)
def test_a_ulp_is_that_of_the_dtype_at_the_magnitude_of_the_value(value: float, dtype: str, expected: float) -> None:
    assert ulp(value, dtype) == expected


def test_a_margin_counts_from_the_golden_s_choice_down_to_what_came() -> None:
    step = GoldenStep(top=((5, 20.0), (6, 19.75), (7, 19.0)))
    assert [margin_ulp(step, token, "bfloat16") for token in (5, 6, 7, 8)] == [0.0, 2.0, 8.0, None]
    assert margin_ulp(step, 6, "fp8") is None


IDS = (1, 2, 3, 4)
GOLDEN = GoldenPrompt(
    id="p",
    prompt_ids=(9,),
    ids=IDS,
    text="",
    finish="length",
    steps=tuple(GoldenStep(top=((token, 20.0), (token + 50, 19.75), (token + 60, 19.5))) for token in IDS),
)


def answer(*ids: int, not_finite: int | None = None) -> Transcript:
    tokens = (Token(token, step != not_finite, step, 0, 1, 1) for step, token in enumerate(ids))
    return Transcript("p", 0, 0, tuple(tokens))


def ties(free: Transcript, step: int, forced: Transcript | None, rule: TieRule = RULE) -> list[tuple[int, int, float]]:
    return [(tie.step, tie.got, tie.margin_ulp) for tie in near_ties(GOLDEN, free, step, forced, rule)]


def test_what_follows_from_an_explained_first_difference_is_a_consequence() -> None:
    free = answer(1, 52, 99, 98)
    assert ties(free, 1, answer(1, 52, 3, 4)) == [(1, 52, 2.0)]
    assert ties(free, 1, answer(1, 2, 3, 54)) == [(1, 52, 2.0), (3, 54, 2.0)], "two passes may round differently"


@pytest.mark.parametrize(
    ("why", "free", "forced", "rule"),
    [
        ("no calibration", answer(1, 52, 3, 4), answer(1, 52, 3, 4), TieRule("bfloat16")),
        ("no forced pass", answer(1, 52, 3, 4), None, RULE),
        ("a forced pass that was cut short", answer(1, 52, 3, 4), answer(1, 52, 3), RULE),
        ("a forced step beyond the bound", answer(1, 52, 3, 4), answer(1, 52, 63, 4), RULE),
        ("a forced step that is not in the top", answer(1, 52, 3, 4), answer(1, 52, 99, 4), RULE),
        ("a first difference beyond the bound", answer(1, 62, 3, 4), answer(1, 2, 3, 4), RULE),
        ("a first difference that is not in the top", answer(1, 99, 3, 4), answer(1, 2, 3, 4), RULE),
        ("a bound that is a little lower", answer(1, 52, 3, 4), answer(1, 52, 3, 4), TieRule("bfloat16", 1.99)),
        ("logits that are not finite", answer(1, 52, 3, 4, not_finite=3), answer(1, 52, 3, 4), RULE),
        ("an answer that ends early", answer(1), answer(1, 2, 3, 4), RULE),
    ],
)
def test_one_thing_that_is_not_explained_makes_it_no_near_tie(
    why: str, free: Transcript, forced: Transcript | None, rule: TieRule
) -> None:
    assert ties(free, 1, forced, rule) == [], why


def calibration(num_near_ties: int, num_steps: int) -> Calibration:
    return Calibration(
        made_for={},
        bound=1.0,
        num_near_ties=num_near_ties,
        num_steps=num_steps,
        cells=(),
        repeats=1,
        environment={},
        made_on="",
        command="",
    )


def test_the_budget_is_the_exact_test_of_two_rates() -> None:
    assert excess(0, 100, 5, 500) == pytest.approx(1.0)
    assert excess(2, 10, 0, 10) == pytest.approx(0.25), "both hits in one of two halves"
    assert over_budget(12, 150, calibration(48, 600)) is None
    assert over_budget(20, 150, calibration(48, 600)) is None, "more, but not significantly"
    reason = over_budget(40, 150, calibration(48, 600))
    assert reason is not None
    assert reason.startswith("40 near ties in 150 steps, 267 per 1,000 where 80 were calibrated: p = ")
    assert over_budget(1, 150, calibration(0, 600)) is None
    assert over_budget(6, 150, calibration(0, 600)) is not None, "a rate of 0 is known no better than its steps allow"
    assert excess(6, 150, 0, 600) < ALPHA < excess(4, 150, 0, 600)


def only(run: Run) -> AttemptFinished:
    (attempt,) = run.attempts
    assert attempt.finished is not None
    assert rejudged(run, attempt) == attempt.finished, "a verdict follows from the folder alone"
    return attempt.finished


def near_tied(world: FakeWorld, fault: str = "drift", **settings: object) -> tuple[Run, ExitCode]:
    """A run in a world that is unsure of one token, calibrated while just that token differed."""
    make_unsure(world)
    calibrated(world, world.matrix(graph=["on"], settings={"fault": "drift"}))
    return world.run(world.matrix(graph=["on"], settings={"fault": fault, **settings}), gives_forced=True)


def test_a_near_tie_is_green_counted_and_told_with_prompt_step_and_margin(fake_world: FakeWorld) -> None:
    run, code = near_tied(fake_world)
    finished = only(run)
    assert (finished.verdict, code, finished.prompts[0].outcome) == (Verdict.PASS, ExitCode.PASS, Outcome.NEAR_TIE)
    (tie,) = finished.prompts[0].near_ties
    assert (finished.prompts[0].prompt, tie.step, tie.margin_ulp) == (PROMPT, STEP, MARGIN_ULP)
    lines = [
        "1 near tie, 5.24e+05 ULP at most where the bound is 5.24e+05",
        f"near ties: {PROMPT!r} token {STEP} (5.2e+05 ULP)",
    ]
    assert explain(run.attempts[0]) == brief(finished) == lines


@pytest.mark.parametrize("fault", ["derail", "corrupt", "repeat", "not_finite", "short"])
def test_no_other_fault_hides_behind_a_near_tie(fault: str, fake_world: FakeWorld) -> None:
    run, _ = near_tied(fake_world, fault, logits="digest")
    assert not only(run).verdict.is_green
    assert only(run).prompts[0].outcome is not Outcome.NEAR_TIE


def test_without_a_calibration_any_difference_is_a_bug(fake_world: FakeWorld) -> None:
    make_unsure(fake_world)
    run, code = fake_world.run(fake_world.matrix(graph=["on"], fault=["drift"]), gives_forced=True)
    assert (only(run).verdict, code) == (Verdict.TOKENS, ExitCode.TOKENS)


def test_a_target_that_cannot_be_fed_has_no_near_ties(fake_world: FakeWorld) -> None:
    make_unsure(fake_world)
    calibrated(fake_world, fake_world.matrix(graph=["on"], settings={"fault": "drift"}))
    run, _ = fake_world.run(fake_world.matrix(graph=["on"], settings={"fault": "drift"}))
    assert only(run).verdict is Verdict.TOKENS


def test_a_calibration_of_another_golden_is_stale_not_drift(fake_world: FakeWorld, tmp_path: Path) -> None:
    near_tied(fake_world)
    make_unsure(fake_world, margin=0.5)
    run, code = fake_world.run(fake_world.matrix(graph=["on"]), run_dir=tmp_path / "again")
    finished = run.attempts[0].finished
    assert finished is not None
    assert (finished.verdict, code) == (Verdict.STALE, ExitCode.GOLDEN)
    assert "measured against another golden" in finished.reason


def test_more_near_ties_than_were_calibrated_are_red(fake_world: FakeWorld) -> None:
    make_unsure(fake_world, where=lambda prompt, step: True)
    ((quiet,),) = (one.calibrations for one in calibrated(fake_world, fake_world.matrix(graph=["on"])))
    assert (quiet.num_near_ties, quiet.num_steps) == (0, 26)
    run, code = fake_world.run(fake_world.matrix(graph=["on"], settings={"fault": "corrupt"}), gives_forced=True)
    finished = only(run)
    assert {prompt.outcome for prompt in finished.prompts} == {Outcome.NEAR_TIE}
    assert (finished.verdict, code) == (Verdict.TOKENS, ExitCode.TOKENS)
    assert finished.reason.startswith("23 near ties in 26 steps, 885 per 1,000 where 0 were calibrated: p = ")
    one = fake_world.matrix(graph=["on"], settings={"fault": "drift"})
    assert only(fake_world.run(one, gives_forced=True, run_dir=Path("one"))[0]).verdict is Verdict.PASS


def test_near_ties_are_only_as_good_as_the_forced_pass_that_explains_them(fake_world: FakeWorld) -> None:
    make_unsure(fake_world)
    calibrated(fake_world, fake_world.matrix(graph=["on"], settings={"fault": "drift"}))
    fix = scripted(lambda attempt: "drift" if attempt.feed == "free" else "no_replay", Verdict.TOKENS)
    run = ablate_in(fake_world, fake_world.matrix(graph=["on"]), fix, gives_forced=True).run
    trial = next(a.finished for a in run.attempts if a.started.attempt.fixes_off)
    assert trial is not None
    assert trial.verdict is Verdict.TOKENS
    assert trial.reason.startswith("near ties are not explained, since the forced pass ended in VACUOUS: ")


def decode(ids: Sequence[int], feed: Sequence[int]) -> list[StepEvent]:
    """One prompt alone, replayed from its second token on; `feed` is what each step feeds on."""
    return [
        StepEvent(
            rank=0,
            step=index,
            phase="decode" if index else "prefill",
            requests=("a",),
            index=(index,),
            argmax=(token,),
            ids=(fed,),
            finite=(True,),
            live=1,
            bucket=1 if index else None,
        )
        for index, (token, fed) in enumerate(zip(ids, feed, strict=True))
    ]


@pytest.mark.parametrize(("replayed", "verdict"), [(4, Verdict.PASS), (3, Verdict.VACUOUS), (2, Verdict.VACUOUS)])
def test_after_a_near_tie_every_token_that_came_had_to_be_replayed(replayed: int, verdict: Verdict) -> None:
    golden, right, free = golden_of({"a": (1, 2, 3)}), (1, 2, 3), (1, 0, 7, 7, 8)
    settings: dict[str, AxisValue] = {"graph": "on", "buckets": "1"}
    attempt = Attempt(cell=Cell(axes=settings))
    workload = Workload(suite="s", requests=(Request(id="a", prompt_ids=(1,), max_new_tokens=5),))
    started = AttemptStarted(
        key="k",
        attempt=attempt,
        model="m",
        suite="s",
        dtype="float32",
        settings=settings,
        workload=workload,
        calibration=calibration(1, 10).model_copy(update={"bound": 1e9}),
        at="",
    )

    def facts(count: int) -> AttemptFacts:
        evidence = Evidence(captures=1, replays=count, replayed_lane_tokens=count, fallbacks={})
        return AttemptFacts(num_ranks=1, evidence={0: evidence})

    forced_started = started.model_copy(update={"attempt": attempt.model_copy(update={"feed": "forced"})})
    fed = decode((1, 0, 3), right)
    forced = Forced(tuple(fed), judge(forced_started, golden, Policy(), fed, facts(2), ""))
    finished = judge(started, golden, Policy(), decode(free, free), facts(replayed), "", forced)
    assert (finished.prompts[0].outcome, finished.verdict) == (Outcome.NEAR_TIE, verdict), finished.reason
    assert finished.eligible_lane_tokens == len(free) - 1

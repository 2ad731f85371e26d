"""What the places of wrong tokens have in common: each pattern planted, and silence where chance would do."""

from dataclasses import replace

import pytest

from graphcheck.harness.judging.judge import UNJUDGED
from graphcheck.harness.judging.patterns import first_tp, patterns
from graphcheck.harness.judging.transcript import Token, Transcript
from graphcheck.harness.judging.wrong_tokens import wrong_tokens
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.run import AttemptFinished, AttemptStarted, RecordedAttempt, Tally, WrongTokens
from graphcheck.schema.verdicts import Verdict
from tests.goldens import golden_of

NONE = Tally(wrong=0, total=0)


def counts(
    lanes: dict[int, tuple[int, int]] | None = None,
    padded: tuple[int, int] = (0, 0),
    full: tuple[int, int] = (0, 0),
    shorter: tuple[int, int] = (0, 0),
    longer: tuple[int, int] = (1, 9),
) -> WrongTokens:
    """Pairs of wrong and total."""

    def tally(pair: tuple[int, int]) -> Tally:
        return Tally(wrong=pair[0], total=pair[1])

    return WrongTokens(
        lanes={lane: tally(pair) for lane, pair in (lanes or {}).items()},
        padded=tally(padded),
        full=tally(full),
        shortest=18,
        shorter=tally(shorter),
        longer=tally(longer),
    )


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            counts(padded=(12, 40), full=(0, 61)),
            ["only in padded batches (12 of 40 wrong, 0 of 61 in full ones)"],
        ),
        (counts({0: (9, 30), 1: (0, 30), 2: (0, 30)}), ["only in lane 0 (9 of 30 wrong, 0 of 60 in the others)"]),
        (counts({0: (0, 30), 1: (0, 30), 2: (9, 30)}), ["only in lane 2 (9 of 30 wrong, 0 of 60 in the others)"]),
        (
            counts({0: (0, 60), 1: (9, 30), 2: (8, 30)}),
            ["first lane that fails: 1 (17 of 60 wrong from there on, 0 of 60 below)"],
        ),
        (counts(shorter=(0, 50), longer=(20, 20)), ["first length that fails: 18 tokens (right in 50 steps below)"]),
    ],
)
def test_a_pattern_that_leaves_no_doubt_is_told(wrong: WrongTokens, told: list[str]) -> None:
    assert patterns(wrong) == told


@pytest.mark.parametrize(
    "wrong",
    [
        counts(padded=(2, 40), full=(0, 61)),
        counts(padded=(12, 40), full=(1, 61)),
        counts(padded=(12, 40), full=(0, 0)),
        counts({0: (9, 30), 1: (9, 30)}),
        counts({0: (0, 3), 1: (2, 3)}),
        counts({0: (9, 30)}),
        counts(shorter=(0, 50), longer=(19, 20)),
        counts(shorter=(0, 2), longer=(3, 3)),
    ],
)
def test_where_chance_would_do_nothing_is_told(wrong: WrongTokens) -> None:
    assert patterns(wrong) == []


def answer(*ids: int, bucket: int = 4, live: int = 3) -> Transcript:
    tokens = tuple(
        Token(token, True, step, 1 if step else 0, bucket if step else None, live) for step, token in enumerate(ids)
    )
    return Transcript("a", 0, 0, tokens)


GOLDEN = golden_of({"a": (1, 2, 3, 4, 5)})
"""One prompt of one token."""


def test_a_free_answer_counts_up_to_its_first_wrong_token() -> None:
    wrong = wrong_tokens(GOLDEN, {("a", 0, 0): answer(1, 2, 9, 9, 9)}, {})
    assert wrong == WrongTokens(
        lanes={1: Tally(wrong=1, total=2)},
        padded=Tally(wrong=1, total=2),
        full=NONE,
        shortest=4,
        shorter=Tally(wrong=0, total=1),
        longer=Tally(wrong=1, total=1),
    )


def test_a_token_that_is_wrong_on_every_rank_is_one_wrong_token() -> None:
    wrong, right = answer(1, 2, 9, 9, 9), answer(1, 2, 3, 4, 5)
    alone = wrong_tokens(GOLDEN, {("a", 0, 0): wrong}, {})
    assert wrong_tokens(GOLDEN, {("a", run, rank): wrong for run in range(2) for rank in range(4)}, {}) == alone
    assert wrong_tokens(GOLDEN, {("a", 0, 0): right, ("a", 0, 1): wrong}, {}) == alone


def test_every_step_of_a_forced_pass_counts() -> None:
    forced = {("a", 0, 0): answer(1, 2, 9, 4, 9, live=4)}
    wrong = wrong_tokens(GOLDEN, {("a", 0, 0): answer(1, 2, 9, 9, 9)}, forced)
    assert wrong is not None
    assert (wrong.full, wrong.padded) == (Tally(wrong=2, total=4), NONE)


def test_right_tokens_and_a_wrong_prefill_have_no_place_in_a_batch() -> None:
    assert wrong_tokens(GOLDEN, {("a", 0, 0): answer(1, 2, 3, 4, 5)}, {}) is None
    assert wrong_tokens(GOLDEN, {("a", 0, 0): answer(9, 2, 3, 4, 5)}, {}) is None


def cells(*red: int, **axes: AxisValue) -> list[RecordedAttempt]:
    found = []
    for tp in (1, 2, 4):
        attempt = Attempt(cell=Cell(axes={"tp": tp, **axes}))
        started = AttemptStarted(
            key=attempt.key, attempt=attempt, model="m", suite="s", dtype="float32", settings={}, at=""
        )
        verdict = Verdict.TOKENS if tp in red else Verdict.PASS
        found.append(RecordedAttempt(started, AttemptFinished(key=attempt.key, verdict=verdict, at="")))
    return found


@pytest.mark.parametrize("verdict", UNJUDGED)
def test_a_tp_size_that_did_not_run_is_not_the_first_that_fails(verdict: Verdict) -> None:
    *ran, last = cells()
    assert last.finished is not None
    unjudged = replace(last, finished=last.finished.model_copy(update={"verdict": verdict}))
    assert first_tp([*ran, unjudged]) == []


def test_the_first_tp_size_that_fails_is_told_where_all_larger_ones_do() -> None:
    assert first_tp(cells(4)) == ["first TP size that fails: 4"]
    assert first_tp(cells(2, 4, graph="on")) == ["first TP size that fails (graph=on): 2"]
    for red in ((), (1, 2, 4), (1,), (2,), (1, 4)):
        assert first_tp(cells(*red)) == [], red
    assert first_tp(cells(4)[1:]) == [], "two sizes show no more than the locus does"

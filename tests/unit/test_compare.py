"""The outcome of one prompt: each rule with an answer that it applies to, and their order."""

from collections.abc import Sequence

import pytest

from graphcheck.harness.judging.compare import compare
from graphcheck.harness.judging.transcript import Token, Transcript, transcripts
from graphcheck.schema.events import ErrorEvent, StepEvent
from graphcheck.schema.golden import GoldenPrompt, GoldenStep
from graphcheck.schema.run import PromptResult
from graphcheck.schema.verdicts import Outcome

IDS = (5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


def golden(ids: Sequence[int] = IDS) -> GoldenPrompt:
    steps = tuple(GoldenStep(top=((token, 9.0), (token + 1, 9.0 - step))) for step, token in enumerate(ids))
    return GoldenPrompt(id="p", prompt_ids=(1,), ids=tuple(ids), text="", finish="length", steps=steps)


def answer(ids: Sequence[int], *, rank: int = 0, run: int = 0, not_finite: int | None = None) -> Transcript:
    tokens = tuple(
        Token(id=token, finite=step != not_finite, engine_step=10 + step, lane=2, bucket=4, live=3)
        for step, token in enumerate(ids)
    )
    return Transcript("p", run, rank, tokens)


def wrong_at(*steps: int, ids: Sequence[int] = IDS) -> tuple[int, ...]:
    return tuple(90 + step if step in steps else token for step, token in enumerate(ids))


def outcome(*answers: Transcript, errors: Sequence[ErrorEvent] = (), right: Sequence[int] = IDS) -> PromptResult:
    return compare(golden(right), answers, errors)


def test_exact_needs_every_rank_of_every_pass() -> None:
    everywhere = [answer(IDS, rank=rank, run=run) for run in (0, 1) for rank in (0, 1)]
    assert outcome(*everywhere).outcome is Outcome.EXACT
    for spoiled in range(4):
        others = [one for number, one in enumerate(everywhere) if number != spoiled]
        bad = answer(wrong_at(4), rank=everywhere[spoiled].rank, run=everywhere[spoiled].run)
        result = outcome(*others, bad)
        assert (result.outcome, result.rank, result.step) == (Outcome.DRIFT, bad.rank, 4)


def test_the_first_difference_is_recorded_with_where_it_was_computed() -> None:
    result = outcome(answer(IDS), answer(wrong_at(3, 7), rank=1))
    assert result.model_dump(exclude_none=True, exclude={"detail", "near_ties"}) == {
        "prompt": "p",
        "outcome": Outcome.DRIFT,
        "rank": 1,
        "step": 3,
        "expected": 3,
        "got": 93,
        "margin": 3.0,
        "engine_step": 13,
        "lane": 2,
        "bucket": 4,
        "live": 3,
    }
    assert result.detail == "2 of 12 tokens wrong on rank 1"


def test_the_earliest_token_is_the_evidence_and_the_worst_rank_names_the_outcome() -> None:
    result = outcome(answer(wrong_at(2)), answer(wrong_at(5, 6, 7, 8, 9), rank=1))
    assert (result.outcome, result.rank, result.step) == (Outcome.CORRUPT, 0, 2)
    assert result.detail == "5 of 12 tokens wrong on rank 1"
    assert outcome(answer(wrong_at(5)), answer(wrong_at(2), rank=1)).rank == 1


def test_an_earlier_pass_comes_before_an_earlier_token() -> None:
    result = outcome(answer(wrong_at(9), run=0), answer(wrong_at(1), run=1))
    assert result.step == 9


@pytest.mark.parametrize(("num_wrong", "expected"), [(2, Outcome.DRIFT), (3, Outcome.CORRUPT), (12, Outcome.CORRUPT)])
def test_a_quarter_of_the_tokens_wrong_is_corrupt(num_wrong: int, expected: Outcome) -> None:
    assert outcome(answer(wrong_at(*range(num_wrong)))).outcome is expected


def test_tokens_past_the_shorter_end_are_not_compared() -> None:
    assert outcome(answer(wrong_at(3)[:4])).outcome is Outcome.CORRUPT, "1 of 4"
    assert outcome(answer(wrong_at(4)[:5])).outcome is Outcome.DRIFT, "1 of 5"


@pytest.mark.parametrize(("ids", "step", "expected", "got"), [(IDS[:-2], 10, 10, None), ((*IDS, 77), 12, None, 77)])
def test_the_same_tokens_but_fewer_or_more_are_length(
    ids: Sequence[int], step: int, expected: int | None, got: int | None
) -> None:
    result = outcome(answer(ids))
    assert (result.outcome, result.step, result.expected, result.got) == (Outcome.LENGTH, step, expected, got)


def test_right_ids_from_logits_that_are_not_finite_are_a_collapse() -> None:
    result = outcome(answer(IDS, not_finite=6))
    assert (result.outcome, result.step, result.detail) == (Outcome.COLLAPSE, 6, "logits were not finite on rank 0")


def test_one_token_for_ever_is_a_collapse_before_it_is_corrupt() -> None:
    assert outcome(answer([5, 1, 2, 3, *[2] * 8])).outcome is Outcome.COLLAPSE
    assert outcome(answer([5, 1, 2, 3, *[2] * 7])).outcome is Outcome.LOOP, "seven times is not for ever"
    assert outcome(answer([5, 1, 2, 3, *[2] * 5])).outcome is Outcome.CORRUPT, "nor five times a loop"


def test_a_golden_that_repeats_a_token_itself_is_no_collapse() -> None:
    right = [1, 2, *[7] * 20]
    assert outcome(answer([1, 3, *[7] * 20]), right=right).outcome is Outcome.DRIFT
    assert outcome(answer([1, 2, *[7] * 19]), right=right).outcome is Outcome.LENGTH


def test_a_loop_is_told_in_the_detail_unless_the_golden_loops_alike() -> None:
    looping = outcome(answer([*IDS, *[3, 4] * 3]))
    assert (looping.detail, looping.loop) == (
        "late end: 18 tokens instead of 12 on rank 0, ending in a loop of 2 that fills 6 tokens",
        2,
    )
    assert outcome(answer(wrong_at(4)), answer([*IDS, *[3, 4] * 3], rank=1)).loop == 2, "on any rank"
    right = [9, *[3, 4] * 4]
    alike = outcome(answer([8, *[3, 4] * 4]), right=right)
    assert (alike.detail, alike.loop) == ("1 of 9 tokens wrong on rank 0", None)


def test_no_tokens_in_one_whole_pass_is_missing() -> None:
    assert outcome(answer([]), answer([], rank=1)).outcome is Outcome.MISSING
    assert outcome().outcome is Outcome.MISSING, "nothing started"
    result = outcome(answer(IDS), answer([], run=1))
    assert (result.outcome, result.detail) == (Outcome.MISSING, "no tokens in pass 2")


def test_no_tokens_on_one_rank_alone_is_not_exact() -> None:
    assert outcome(answer(IDS), answer([], rank=1)).outcome is Outcome.LENGTH


def test_an_error_of_the_request_comes_first() -> None:
    error = ErrorEvent(rank=1, kind="request", error="RequestError", message="too long", phase="prefill", request="p")
    result = outcome(answer(wrong_at(1)), errors=[error])
    assert (result.outcome, result.rank, result.detail) == (Outcome.ERROR, 1, "RequestError: too long")
    other = error.model_copy(update={"request": "q"})
    assert outcome(answer(IDS), errors=[other]).outcome is Outcome.EXACT


def step(index: int, argmax: int, fed: int | None = None) -> StepEvent:
    ids = (argmax if fed is None else fed,)
    return StepEvent(
        rank=0,
        step=index,
        phase="decode",
        requests=("p",),
        index=(index,),
        argmax=(argmax,),
        ids=ids,
        finite=(True,),
        live=1,
    )


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        ([step(0, 5), step(2, 2)], "token 2 was reported where token 1 was due"),
        ([step(0, 5), step(0, 5)], "token 0 was reported where token 1 was due"),
        ([step(0, 5), step(1, 1, fed=4)], "token 1: fed on 4, but picked 1"),
    ],
)
def test_tokens_that_make_no_answer_are_an_error(steps: list[StepEvent], broken: str) -> None:
    (transcript,) = transcripts(steps, feed="free").values()
    result = outcome(transcript)
    assert (result.outcome, result.detail) == (Outcome.ERROR, broken)


def test_a_forced_pass_judges_what_was_picked_not_what_was_fed() -> None:
    (transcript,) = transcripts([step(0, 7, fed=5), step(1, 1)], feed="forced").values()
    assert (transcript.ids, transcript.broken) == ((7, 1), None)

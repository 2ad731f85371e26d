"""What is told of one cell: errors without a flood, where each was raised, steps that ranks did not share."""

import pytest

from graphcheck.report.explain import brief, explain
from graphcheck.schema.events import ErrorEvent
from graphcheck.schema.run import AttemptFacts, AttemptFinished, Parting, Story
from graphcheck.schema.verdicts import Verdict
from tests.fake_world import FakeWorld

TRACEBACK = """Traceback (most recent call last):
  File "/somewhere/graphcheck/targets/bundled/rank.py", line 88, in _work
    engine.run()
  File "/somewhere/graphcheck/engine/engine.py", line 204, in _decode
    raise ValueError("no such page")
ValueError: no such page
"""


def refused(rank: int, prompt: str) -> ErrorEvent:
    return ErrorEvent(
        rank=rank,
        kind="request",
        error="RequestError",
        message="too long",
        phase="prefill",
        request=prompt,
        traceback=TRACEBACK,
    )


def raised(rank: int, message: str = "no such page", *, consequence: bool = False) -> ErrorEvent:
    return ErrorEvent(
        rank=rank,
        kind="crash",
        error="ValueError",
        message=message,
        phase="decode",
        traceback=TRACEBACK,
        consequence=consequence,
    )


def failed(reason: str, *errors: ErrorEvent, verdict: Verdict = Verdict.ERROR) -> AttemptFinished:
    facts = AttemptFacts(num_ranks=4, errors=errors)
    return AttemptFinished(key="k", verdict=verdict, reason=reason, facts=facts, at="")


def test_prompts_that_every_rank_refuses_are_a_line_each_and_a_few_at_most() -> None:
    errors = [refused(rank, prompt) for prompt in "abcde" for rank in (2, 0, 1, 3)]
    assert brief(failed("5 of 5 prompts failed", *errors))[1:] == [
        *(f"ranks 0, 1, 2, 3, prefill: prompt '{prompt}': RequestError: too long" for prompt in "abc"),
        "and 2 more errors",
    ]
    assert brief(failed("5 of 5 prompts failed", *errors[:16]))[-1] == "and 1 more error"


@pytest.mark.parametrize(
    ("reason", "lines"),
    [
        ("rank 1 raised ValueError in decode: no such page", ["rank 1, decode: raised at engine.py:204 in _decode"]),
        ("another", ["rank 1, decode: ValueError: no such page, raised at engine.py:204 in _decode"]),
    ],
)
def test_an_error_with_a_traceback_tells_where_it_was_raised(reason: str, lines: list[str]) -> None:
    assert brief(failed(reason, raised(1), verdict=Verdict.CRASH)) == [reason, *lines]


def test_what_the_reason_has_told_is_not_told_again(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[2], fault=["raise"]))
    assert sum("no such page" in line for line in explain(run.attempts[0])) == 1


def test_batches_that_parted_in_steps_of_different_numbers_name_no_common_step() -> None:
    def told(*batches: str) -> str:
        story = Story(parting=Parting(step=1, batches=dict(enumerate(batches))))
        return brief(failed("", verdict=Verdict.TOKENS).model_copy(update={"story": story}))[1]

    assert told("decode of 3", "decode of 2") == (
        "their batches parted at engine step 1: rank 0 ran decode of 3, rank 1 ran decode of 2"
    )
    assert told("decode of rows=2 as its step 3", "decode of rows=1 as its step 1") == (
        "their batches parted: rank 0 ran decode of rows=2 as its step 3, rank 1 ran decode of rows=1 as its step 1"
    )

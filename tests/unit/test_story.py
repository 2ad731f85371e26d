"""How ranks came apart, from planted step events: the first disagreement, the parting of batches, the cause."""

import pytest

from graphcheck.harness.judging.story import DIVERGED, MISMATCHED, first_disagreement, first_parting, parting_in, tell
from graphcheck.report.explain import brief
from graphcheck.schema.events import StepEvent
from graphcheck.schema.journal import Journal, Tag
from graphcheck.schema.run import AttemptFacts, AttemptFinished, Disagreement, Parting, Stall
from graphcheck.schema.verdicts import Verdict


def step(
    rank: int,
    number: int,
    tokens: dict[str, int],
    *,
    index: int = 0,
    run: int = 0,
    bucket: int | None = None,
    fed: int | None = None,
) -> StepEvent:
    """A step that gives each prompt of `tokens` its token; `fed` is what a forced pass would feed in its place."""
    picked = tuple(tokens.values())
    return StepEvent(
        rank=rank,
        step=number,
        run=run,
        phase="decode",
        requests=tuple(tokens),
        index=(index,) * len(tokens),
        argmax=picked,
        ids=picked if fed is None else (fed,) * len(tokens),
        finite=(True,) * len(tokens),
        live=len(tokens),
        bucket=bucket,
    )


def finished(verdict: Verdict) -> AttemptFinished:
    return AttemptFinished(key="k.forced", verdict=verdict, at="")


def test_ranks_that_agree_have_no_story() -> None:
    steps = [step(rank, number, {"a": number, "b": 9}) for number in range(3) for rank in (0, 1)]
    assert tell(steps, None, Verdict.PASS, None) is None
    assert tell([], None, Verdict.HANG, None) is None


def test_the_first_disagreement_is_the_earliest_by_engine_step_not_by_arrival() -> None:
    steps = [
        step(1, 7, {"a": 50, "b": 3}, index=2),
        step(0, 7, {"a": 51, "b": 3}, index=2),
        step(0, 4, {"a": 1, "b": 2}, index=1),
        step(1, 4, {"a": 1, "b": 8}, index=1),
    ]
    assert first_disagreement(steps) == Disagreement(step=4, prompt="b", index=1, tokens={0: 2, 1: 8})


def test_all_ranks_tokens_are_told_and_an_earlier_pass_comes_first() -> None:
    late = [step(rank, 1, {"a": rank}, run=1) for rank in range(4)]
    early = [step(rank, 30, {"a": 5 if rank == 2 else 4}, run=0) for rank in range(4)]
    assert first_disagreement([*late, *early]) == Disagreement(
        run=0, step=30, prompt="a", index=0, tokens={0: 4, 1: 4, 2: 5, 3: 4}
    )


def test_what_was_picked_disagrees_even_if_the_same_was_fed() -> None:
    steps = [step(rank, 1, {"a": rank}, fed=7) for rank in (0, 1)]
    disagreement = first_disagreement(steps)
    assert disagreement is not None
    assert disagreement.tokens == {0: 0, 1: 1}


def test_a_step_that_one_rank_alone_finished_is_no_disagreement() -> None:
    steps = [step(0, 1, {"a": 3}), step(0, 2, {"a": 4}), step(1, 1, {"a": 3})]
    assert first_disagreement(steps) is None
    assert first_parting(steps) is None


def test_batches_part_by_size_by_bucket_or_by_phase() -> None:
    same = [step(rank, 1, {"a": 1, "b": 2}, bucket=2) for rank in (0, 1)]
    parted = [step(0, 2, {"a": 1, "b": 2}, bucket=2), step(1, 2, {"b": 2}, bucket=1)]
    assert first_parting([*same, *parted]) == Parting(
        step=2, batches={0: "decode of 2 in bucket 2", 1: "decode of 1 in bucket 1"}
    )
    prefill = step(1, 2, {"a": 1, "b": 2}).model_copy(update={"phase": "prefill"})
    by_phase = first_parting([step(0, 2, {"a": 1, "b": 2}), prefill])
    assert by_phase is not None
    assert by_phase.batches == {0: "decode of 2", 1: "prefill of 2"}
    other_bucket = [step(0, 3, {"a": 1}, bucket=1), step(1, 3, {"a": 1}, bucket=2)]
    assert first_parting(other_bucket) is not None


def stuck(*ranks: tuple[int, int], finished: bool = False) -> Stall:
    """Rank after rank: the number of its last collective, and its rows."""
    journals = [
        Journal(
            rank=rank,
            phase="decode",
            step=4,
            finished=finished and rank == 1,
            tags=tuple(Tag(number=n, kind="reduce", rows=rows, nbytes=4 * rows, site="") for n in (last - 1, last)),
        )
        for rank, (last, rows) in enumerate(ranks)
    ]
    return Stall(kind="hang", phase="decode", step=4, limit_seconds=2, stalled_seconds=2.1, journals=tuple(journals))


def test_batches_that_part_in_the_step_that_hangs_are_told_by_the_collectives_that_never_met() -> None:
    parted = Parting(step=4, batches={0: "decode of rows=2", 1: "decode of rows=1"})
    assert parting_in(stuck((22, 2), (22, 1))) == parted
    assert parting_in(stuck((22, 2), (22, 2))) is None
    assert parting_in(stuck((22, 2), (23, 1))) is None, "another collective says nothing about this one"
    assert parting_in(stuck((22, 2), (22, 1), finished=True)) is None, "a rank that has finished is in none"
    stall = stuck((22, 2), (22, 1))
    ahead = stall.model_copy(update={"journals": (stall.journals[0], stall.journals[1].model_copy(update={"step": 6}))})
    assert parting_in(ahead) == Parting(
        step=4, batches={0: "decode of rows=2 as its step 4", 1: "decode of rows=1 as its step 6"}
    )
    told = tell([], stuck((22, 2), (22, 1)), Verdict.HANG, None)
    assert told is not None
    assert told.parting == parted
    earlier = [step(0, 2, {"a": 1, "b": 2}), step(1, 2, {"b": 2})]
    told = tell(earlier, stuck((22, 2), (22, 1)), Verdict.HANG, None)
    assert told is not None
    assert told.parting is not None
    assert told.parting.step == 2, "the first parting wins"


def test_the_forced_pass_tells_the_cause_of_a_hang_and_of_nothing_else() -> None:
    steps = [step(rank, 1, {"a": rank}) for rank in (0, 1)]

    def cause(verdict: Verdict, forced: Verdict | None) -> str:
        story = tell(steps, None, verdict, None if forced is None else finished(forced))
        assert story is not None
        return story.cause

    assert cause(Verdict.HANG, Verdict.HANG) == MISMATCHED
    assert cause(Verdict.HANG, Verdict.TOKENS) == DIVERGED
    assert cause(Verdict.HANG, Verdict.PASS) == DIVERGED
    assert cause(Verdict.HANG, Verdict.CRASH) == "not known: the forced pass ended in CRASH"
    assert cause(Verdict.HANG, None) == ""
    assert cause(Verdict.TOKENS, Verdict.HANG) == ""


def test_a_hang_of_ranks_that_agreed_still_has_its_cause() -> None:
    story = tell([], None, Verdict.HANG, finished(Verdict.HANG))
    assert story is not None
    assert (story.disagreement, story.parting, story.cause) == (None, None, MISMATCHED)


def waiting(rank: int, last: int, rows: int, waits_in: str | None = "wait_for_peers") -> Journal:
    tags = tuple(Tag(number=n, kind="reduce", rows=rows, nbytes=4 * rows, site="") for n in range(last - 7, last + 1))
    return Journal(
        rank=rank, phase="decode", step=2, collective=last, waiting=waits_in, waiting_seconds=2.25, tags=tags
    )


@pytest.mark.parametrize(
    ("journals", "waits"),
    [
        ([waiting(0, 22, 2), waiting(1, 22, 1)], ["; waits for rank 1", "; waits for rank 0"]),
        (
            [waiting(0, 22, 1), waiting(1, 21, 1, None), waiting(2, 22, 1)],
            ["; waits for rank 1", "", "; waits for rank 1"],
        ),
        (
            [waiting(0, 22, 1), waiting(1, 40, 1), waiting(2, 20, 1)],
            ["; waits for rank 2", "; waits for ranks 0, 2", ""],
        ),
    ],
)
def test_who_waits_for_whom_and_how_long(journals: list[Journal], waits: list[str]) -> None:
    journals[-1] = journals[-1] if waits[-1] else journals[-1].model_copy(update={"waiting": None})
    stall = stuck((1, 1)).model_copy(update={"journals": tuple(journals)})
    hung = finished(Verdict.HANG).model_copy(update={"facts": AttemptFacts(stall=stall)})
    told = [line for line in brief(hung) if line.startswith("rank ")]
    for line, journal, waits_for in zip(told, journals, waits, strict=True):
        place = f"rank {journal.rank}: decode, step 2, collective {journal.collective}"
        assert line == place + (", in wait_for_peers for 2.2 s" if journal.waiting else "") + waits_for

"""Owns the proof that the suite `twelve`, answered right, drives the scheduler through what it is made for."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from tokenizers import Tokenizer

from graphcheck.engine.blocks import BlockAllocator
from graphcheck.engine.request import Request
from graphcheck.engine.scheduler import Scheduler
from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.files.suite_file import load_suite
from graphcheck.models.probe_tasks import BOS, EOS, answer
from graphcheck.schema.suite import Prompt, Suite
from graphcheck.shipped import models_dir

BUCKETS = (1, 2, 4, 8)
MATRIX = load_matrix("default")
LANES, CONTEXT, PAGE_SIZE = (int(MATRIX.matrix.settings[name]) for name in ("lanes", "context", "page_size"))
TWELVE = load_suite("twelve", MATRIX.path).suite


@dataclass(frozen=True)
class Lane:
    """A lane of one step: who is in it, the pages it holds, and the position whose KV the step writes."""

    prompt: str
    block_table: tuple[int, ...]
    position: int

    @property
    def page(self) -> int:
        return self.block_table[self.position // PAGE_SIZE]


@dataclass(frozen=True)
class Trace:
    """One engine step as it was scheduled: its lanes before it, the prompts that ended in it."""

    number: int
    phase: str
    lanes: tuple[Lane, ...]
    ended: tuple[str, ...]

    @property
    def bucket(self) -> int:
        return next(bucket for bucket in BUCKETS if bucket >= len(self.lanes))


@dataclass(frozen=True)
class Overwrite:
    """A write of a spare lane with stale inputs: it hits `position` of `prompt`, which was admitted in `admitted`."""

    step: int
    lane: int
    prompt: str
    position: int
    admitted: int


def prompt_length(prompt: Prompt) -> int:
    return 1 + len(str(prompt.text).split())


def right_answer(prompt: Prompt) -> list[str]:
    return answer(str(prompt.text)).split()


def schedule(suite: Suite) -> list[Trace]:
    """Runs the engine's own scheduler over the right answers. Words stand for token ids: it never looks inside."""
    answers = {prompt.id: right_answer(prompt) for prompt in suite.prompts}
    words = sorted({word for right in answers.values() for word in right})
    blocks = BlockAllocator(LANES * CONTEXT // PAGE_SIZE, PAGE_SIZE)
    scheduler = Scheduler(lanes=LANES, context=CONTEXT, blocks=blocks)
    for prompt in suite.prompts:
        ids = tuple(range(prompt_length(prompt)))
        stop_ids = (words.index(EOS),)
        scheduler.submit(Request(prompt.id, ids, prompt.arrival, prompt.max_new_tokens, stop_ids))
    traces = []
    while (step := scheduler.next_step()) is not None:
        held = tuple(Lane(s.request.id, tuple(s.block_table), s.num_tokens - 1) for s in step.sequences)
        next_ids = [words.index(answers[s.request.id][len(s.output_ids)]) for s in step.sequences]
        ended = tuple(finished.sequence.request.id for finished in scheduler.commit(step, next_ids))
        traces.append(Trace(step.number, step.phase, held, ended))
    return traces


def needed_positions(prompt: Prompt, num_said: int) -> set[int]:
    """Positions of the prompt's items that the answer still has to repeat after `num_said` of its tokens."""
    words, right = str(prompt.text).split(), right_answer(prompt)[:-1]
    begin = next(i for i in range(len(words)) if words[i : i + len(right)] == right)
    return {1 + begin + i for i in range(num_said, len(right))}


def overwrites(suite: Suite, traces: list[Trace]) -> list[Overwrite]:
    """What lanes that are spare, but keep the last step's inputs, would destroy of what is still to be said.

    Counts only pages that such a lane held in the decode step just before the prompt was admitted into them.
    """
    prompts = {prompt.id: prompt for prompt in suite.prompts}
    found: list[Overwrite] = []
    kept: dict[int, Lane] = {}
    last_decode: tuple[Lane, ...] = ()
    admitted: dict[str, tuple[int, tuple[Lane, ...]]] = {}
    for trace in traces:
        if trace.phase == "prefill":
            admitted[trace.lanes[0].prompt] = (trace.number, last_decode)
            continue
        for lane in sorted(kept.keys() & range(len(trace.lanes), trace.bucket)):
            page, offset = kept[lane].page, kept[lane].position % PAGE_SIZE
            for live in trace.lanes:
                number, before = admitted[live.prompt]
                if page not in live.block_table or lane >= len(before) or page not in before[lane].block_table:
                    continue
                position = live.block_table.index(page) * PAGE_SIZE + offset
                num_said = live.position + 1 - prompt_length(prompts[live.prompt])
                if position in needed_positions(prompts[live.prompt], num_said):
                    found.append(Overwrite(trace.number, lane, live.prompt, position, number))
        last_decode = trace.lanes
        kept.update(enumerate(trace.lanes))
    return found


def admitted_waiting(suite: Suite, traces: list[Trace]) -> list[str]:
    """Prompts that had arrived, found every lane taken, and came in right after another ended below its limit."""
    prompts = {prompt.id: prompt for prompt in suite.prompts}
    return [
        after.lanes[0].prompt
        for before, after in pairwise(traces)
        if len(before.lanes) == LANES
        and any(len(right_answer(prompts[ended])) < prompts[ended].max_new_tokens for ended in before.ended)
        and after.phase == "prefill"
        and prompts[after.lanes[0].prompt].arrival < before.number
    ]


def crossed_while_decoding(traces: list[Trace]) -> set[str]:
    """Prompts that took a new page for a token of their answer."""
    return {
        lane.prompt
        for trace in traces
        if trace.phase == "decode"
        for lane in trace.lanes
        if lane.position % PAGE_SIZE == 0
    }


def buckets(traces: list[Trace]) -> list[int]:
    """Buckets of the decode steps, each run of equal ones once."""
    of_steps = [trace.bucket for trace in traces if trace.phase == "decode"]
    return of_steps[:1] + [after for before, after in pairwise(of_steps) if after != before]


@pytest.mark.parametrize("prompt", TWELVE.prompts, ids=lambda prompt: prompt.id)
def test_prompt_is_text_the_tokenizer_knows_and_has_room_for_its_answer(prompt: Prompt) -> None:
    tokenizer = Tokenizer.from_file(str(models_dir() / "probe" / "tokenizer.json"))
    ids = tokenizer.encode(str(prompt.text)).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == f"{BOS} {prompt.text}"
    assert len(ids) == prompt_length(prompt)
    assert 4 <= len(right_answer(prompt)) < prompt.max_new_tokens
    assert len(ids) + prompt.max_new_tokens <= CONTEXT


def test_twelve_prompts_of_very_different_lengths_some_arriving_later() -> None:
    assert len(TWELVE.prompts) == 12
    for lengths in (
        [prompt_length(prompt) for prompt in TWELVE.prompts],
        [len(right_answer(prompt)) for prompt in TWELVE.prompts],
    ):
        assert max(lengths) >= 10 * min(lengths)
        assert len(set(lengths)) >= 10
    assert {prompt.arrival > 0 for prompt in TWELVE.prompts} == {False, True}
    assert TWELVE.stop is not None
    assert TWELVE.stop.fraction == 0.25


def test_early_stop_admits_a_waiting_prompt() -> None:
    assert admitted_waiting(TWELVE, schedule(TWELVE))


def test_batches_grow_and_shrink_through_every_bucket() -> None:
    seen = buckets(schedule(TWELVE))
    assert set(seen) == set(BUCKETS)
    assert sum(before < after for before, after in pairwise(seen)) >= 2
    assert sum(before > after for before, after in pairwise(seen)) >= 2


def test_some_lanes_are_spare_in_more_than_one_bucket() -> None:
    spare = {trace.bucket for trace in schedule(TWELVE) if len(trace.lanes) < trace.bucket}
    assert len(spare) >= 2


def test_most_sequences_cross_a_page_border_while_decoding() -> None:
    assert len(crossed_while_decoding(schedule(TWELVE))) > len(TWELVE.prompts) / 2


def test_a_stale_spare_lane_would_write_into_a_just_admitted_prompt() -> None:
    assert any(hit.step == hit.admitted + 1 for hit in overwrites(TWELVE, schedule(TWELVE)))


def test_prompts_that_never_meet_show_none_of_it() -> None:
    prompts = [prompt.model_copy(update={"arrival": CONTEXT * i}) for i, prompt in enumerate(TWELVE.prompts)]
    apart = TWELVE.model_copy(update={"prompts": tuple(prompts)})
    traces = schedule(apart)
    assert buckets(traces) == [1]
    assert admitted_waiting(apart, traces) == []
    assert overwrites(apart, traces) == []

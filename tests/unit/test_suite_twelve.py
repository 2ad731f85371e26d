"""Owns the proof that the suite `twelve`, answered right, drives the scheduler through what it is made for."""

from dataclasses import dataclass

from graphcheck.engine.blocks import BlockAllocator
from graphcheck.engine.request import Request
from graphcheck.engine.scheduler import Scheduler
from graphcheck.models.probe_tasks import EOS, answer
from graphcheck.schema.suite import Prompt, Suite

BUCKETS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Lane:
    """A lane of one step: who is in it, the pages it holds, and the position whose KV the step writes."""

    prompt: str
    block_table: tuple[int, ...]
    position: int

    def page(self, page_size: int) -> int:
        return self.block_table[self.position // page_size]


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


def schedule(suite: Suite, *, lanes: int, context: int, page_size: int) -> list[Trace]:
    """Runs the engine's own scheduler over the right answers. Words stand for token ids: it never looks inside."""
    answers = {prompt.id: right_answer(prompt) for prompt in suite.prompts}
    words = sorted({word for right in answers.values() for word in right})
    blocks = BlockAllocator(lanes * context // page_size, page_size)
    scheduler = Scheduler(lanes=lanes, context=context, blocks=blocks)
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


def overwrites(suite: Suite, traces: list[Trace], page_size: int) -> list[Overwrite]:
    """What lanes that are spare, but keep the last step's inputs, would destroy of what is still to be said.

    Counts only pages that a spare lane held in the decode step just before the prompt was admitted into them.
    """
    prompts = {prompt.id: prompt for prompt in suite.prompts}
    found, kept, before, admitted = [], {}, {}, {}
    for trace in traces:
        if trace.phase == "prefill":
            admitted[trace.lanes[0].prompt] = (trace.number, dict(before))
            continue
        for lane in range(len(trace.lanes), trace.bucket):
            if lane not in kept:
                continue
            page, offset = kept[lane].page(page_size), kept[lane].position % page_size
            for live in trace.lanes:
                number, previous = admitted[live.prompt]
                if page not in live.block_table or lane not in previous or page not in previous[lane].block_table:
                    continue
                position = live.block_table.index(page) * page_size + offset
                num_said = live.position + 1 - prompt_length(prompts[live.prompt])
                if position in needed_positions(prompts[live.prompt], num_said):
                    found.append(Overwrite(trace.number, lane, live.prompt, position, number))
        before = dict(enumerate(trace.lanes))
        kept.update(before)
    return found

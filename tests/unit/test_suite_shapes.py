"""Owns the proof that the suite `shapes`, answered right, drives the scheduler to every edge it is made for."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from graphcheck.engine.blocks import BlockAllocator
from graphcheck.engine.config import parse_buckets
from graphcheck.engine.request import Request
from graphcheck.engine.scheduler import Scheduler
from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.files.suite_file import load_suite
from graphcheck.models.probe_tasks import EOS, answer
from graphcheck.schema.matrix import Matrix
from graphcheck.schema.suite import Prompt, Suite
from graphcheck.shipped import matrices_dir

LONG_PREFILL = 96
"""Tokens; more than any decode batch, so that whatever memory prefill takes it takes anew after capture."""


@dataclass(frozen=True)
class Trace:
    """One engine step. Parallel tuples over its lanes: the prompt, its tokens so far, its pages."""

    run: int
    phase: str
    prompts: tuple[str, ...]
    lengths: tuple[int, ...]
    pages: tuple[tuple[int, ...], ...]

    @property
    def batch(self) -> int:
        return len(self.prompts)


@dataclass(frozen=True)
class Settings:
    """What the matrix sets, as far as the schedule depends on it."""

    lanes: int
    context: int
    page_size: int
    buckets: tuple[int, ...]


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix("shapes").matrix


@pytest.fixture(scope="module")
def suite() -> Suite:
    return load_suite("shapes", matrices_dir() / "shapes.toml").suite


@pytest.fixture(scope="module")
def settings(matrix: Matrix) -> Settings:
    numbers = {name: int(matrix.settings[name]) for name in ("lanes", "context", "page_size")}
    return Settings(**numbers, buckets=parse_buckets(str(matrix.settings["buckets"])))


@pytest.fixture(scope="module")
def traces(suite: Suite, settings: Settings) -> list[Trace]:
    return schedule(suite, settings)


def words_of(prompt: Prompt) -> int:
    """Tokens of the prompt: the tokenizer puts <bos> before its words."""
    return 1 + len(str(prompt.text).split())


def right_answer(prompt: Prompt) -> list[str]:
    """What is said before the prompt's limit; the probe's tasks say it, no model does."""
    return answer(str(prompt.text)).split()[: prompt.max_new_tokens]


def totals(suite: Suite) -> dict[str, int]:
    return {prompt.id: words_of(prompt) + len(right_answer(prompt)) for prompt in suite.prompts}


def schedule(suite: Suite, settings: Settings) -> list[Trace]:
    """Every pass, as the engine runs them: a new scheduler each, over one allocator."""
    blocks = BlockAllocator(settings.lanes * settings.context // settings.page_size, settings.page_size)
    return [trace for run in range(suite.passes) for trace in one_pass(suite, settings, blocks, run)]


def one_pass(suite: Suite, settings: Settings, blocks: BlockAllocator, run: int) -> list[Trace]:
    said, eos = 0, 1  # all that the schedule sees of a token is whether it stops its sequence
    answers = {prompt.id: right_answer(prompt) for prompt in suite.prompts}
    scheduler = Scheduler(lanes=settings.lanes, context=settings.context, blocks=blocks)
    for prompt in suite.prompts:
        ids = (said,) * words_of(prompt)
        scheduler.submit(Request(prompt.id, ids, prompt.arrival, prompt.max_new_tokens, (eos,)))
    traces = []
    while (step := scheduler.next_step()) is not None:
        sequences = step.sequences
        traces.append(
            Trace(
                run,
                step.phase,
                tuple(sequence.request.id for sequence in sequences),
                tuple(sequence.num_tokens for sequence in sequences),
                tuple(tuple(sequence.block_table) for sequence in sequences),
            )
        )
        tokens = [answers[sequence.request.id][len(sequence.output_ids)] for sequence in sequences]
        scheduler.commit(step, [eos if token == EOS else said for token in tokens])
    return traces


def decode_batches(traces: list[Trace]) -> list[int]:
    return [trace.batch for trace in traces if trace.phase == "decode"]


def changes(traces: list[Trace]) -> set[tuple[int, int]]:
    """Batch sizes of decode steps that follow each other, prefill steps between them left out."""
    batches = decode_batches(traces)
    return {(before, after) for before, after in pairwise(batches) if before != after}


def test_batches_lie_at_under_and_over_every_bucket(traces: list[Trace], settings: Settings) -> None:
    batches = set(decode_batches(traces))
    for bucket in settings.buckets:
        wanted = {bucket - 1, bucket, bucket + 1} - {0}
        assert wanted <= batches, f"bucket {bucket}"
    assert max(batches) == settings.lanes


def test_batches_cross_every_bucket_both_ways(traces: list[Trace], settings: Settings) -> None:
    for bucket in settings.buckets:
        assert any(before <= bucket < after for before, after in changes(traces)), f"grow over {bucket}"
        assert any(after <= bucket < before for before, after in changes(traces)), f"shrink under {bucket}"


def test_sequences_end_around_page_edges_and_at_the_context_limit(suite: Suite, settings: Settings) -> None:
    page = settings.page_size
    around = {edge + offset for edge in (page, 2 * page) for offset in (-1, 0, 1)}
    ends = totals(suite)
    assert around | {settings.context} <= set(ends.values())
    named = {prompt: int(prompt.removeprefix("ends-at-")) for prompt in ends if prompt.startswith("ends-at-")}
    assert named == {prompt: ends[prompt] for prompt in named}
    assert set(named.values()) == around | {settings.context}


def test_sequences_end_by_eos_and_by_their_limit(suite: Suite) -> None:
    endings = {right_answer(prompt)[-1] == EOS for prompt in suite.prompts}
    assert endings == {True, False}


def test_pages_are_entered_in_replayed_and_in_eager_steps(traces: list[Trace], settings: Settings) -> None:
    entered = {
        trace.batch > settings.buckets[-1]
        for trace in traces
        for length in trace.lengths
        if trace.phase == "decode" and (length - 1) % settings.page_size == 0
    }
    assert entered == {True, False}


def test_a_long_prefill_comes_between_replays(traces: list[Trace], settings: Settings) -> None:
    for run in {trace.run for trace in traces}:
        own = [trace for trace in traces if trace.run == run]
        long = [at for at, trace in enumerate(own) if trace.phase == "prefill" and trace.lengths[0] >= LONG_PREFILL]
        assert long
        for at in long:
            before, after = own[at - 1], own[at + 1]
            assert before.phase == after.phase == "decode"
            assert set(before.prompts) & set(after.prompts), "a sequence lives through it"
            assert max(before.batch, after.batch) <= settings.buckets[-1]


def test_the_second_pass_has_the_same_steps_on_other_pages(traces: list[Trace]) -> None:
    first, second = ([replace(trace, run=0) for trace in traces if trace.run == run] for run in (0, 1))
    assert [replace(trace, pages=()) for trace in first] == [replace(trace, pages=()) for trace in second]
    assert [trace.pages for trace in first] != [trace.pages for trace in second]


def test_the_engine_is_idle_before_the_last_prompt(traces: list[Trace], suite: Suite) -> None:
    own = [trace for trace in traces if trace.run == 0]
    arrived = next(at for at, trace in enumerate(own) if trace.prompts == (suite.prompts[-1].id,))
    assert own[arrived].phase == "prefill"
    assert all(trace.prompts == own[arrived].prompts for trace in own[arrived:])
    assert arrived < suite.prompts[-1].arrival, "steps are skipped only when nothing is running"


def test_one_cell_decodes_eager_without_padding(matrix: Matrix) -> None:
    exact = [cell for cell in matrix.extra_cells if cell.get("shapes") == "exact"]
    assert [cell["graph"] for cell in exact] == ["off"]
    assert "shapes" not in matrix.axes


Check = Callable[[Suite, Settings], None]


def of_schedule(check: Callable[[list[Trace], Settings], None]) -> Check:
    return lambda suite, settings: check(schedule(suite, settings), settings)


@pytest.mark.parametrize(
    ("lanes", "dropped", "check"),
    [
        (8, "", of_schedule(test_batches_lie_at_under_and_over_every_bucket)),
        (8, "", of_schedule(test_batches_cross_every_bucket_both_ways)),
        (8, "", of_schedule(test_pages_are_entered_in_replayed_and_in_eager_steps)),
        (12, "ends-at-16", test_sequences_end_around_page_edges_and_at_the_context_limit),
        (12, "ends-at-128", of_schedule(test_a_long_prefill_comes_between_replays)),
    ],
)
def test_a_poorer_suite_is_noticed(suite: Suite, settings: Settings, lanes: int, dropped: str, check: Check) -> None:
    kept = tuple(prompt for prompt in suite.prompts if prompt.id != dropped)
    with pytest.raises(AssertionError):
        check(suite.model_copy(update={"prompts": kept}), replace(settings, lanes=lanes))

"""Ranks whose logits part while their tokens agree, by faults planted in real ranks: `--audit` sees both kinds."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from graphcheck import shipped
from graphcheck.engine.collectives import StagedCollectives, Ticket
from graphcheck.engine.config import defaults
from graphcheck.engine.journal import JournalMemory
from graphcheck.harness.files.golden_store import read_golden
from graphcheck.harness.judging.story import first_disagreement, first_split
from graphcheck.schema.events import EVENT, Event, EvidenceEvent, StepEvent
from graphcheck.schema.suite import Request, Workload
from graphcheck.targets.bundled.job import Job
from graphcheck.targets.bundled.mapping import EventWriter
from graphcheck.targets.bundled.rank import work

NUM_RANKS = 2
PROMPTS = ("copy-3", "recall-4-of-2")
LAST_REDUCE = "layers.2.down_proj.reduce"


def probe_workload() -> Workload:
    golden = read_golden(shipped.golden_dir() / "probe" / "twelve.jsonl")
    requests = (
        Request(id=name, prompt_ids=golden.prompt(name).prompt_ids, max_new_tokens=len(golden.prompt(name).ids))
        for name in PROMPTS
    )
    return Workload(suite="twelve", requests=tuple(requests))


def run_ranks(out_dir: Path, plant: Callable[[int], None], **settings: int | str) -> list[Event]:
    """The probe on forked ranks, in each of which `plant(rank)` has changed the engine first."""
    job = Job(
        model_dir=shipped.models_dir() / "probe",
        settings=defaults() | {"tp": NUM_RANKS, "audit": "on", "lanes": 2, "buckets": "1,2"} | settings,
        workload=probe_workload(),
    )
    memory, _ = JournalMemory.create(NUM_RANKS)
    context = multiprocessing.get_context("fork")
    all_done = context.Barrier(NUM_RANKS)

    def live(rank: int) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        plant(rank)
        store = dist.FileStore(str(out_dir / "store"), NUM_RANKS)
        with open(out_dir / f"rank{rank}.jsonl", "w", encoding="utf-8") as events:
            writer = EventWriter(rank, events)
            status = work(job, rank, memory.writer(rank), writer, lambda: store, lambda: all_done.wait() and None)
        os._exit(status)

    ranks = [context.Process(target=live, args=(rank,)) for rank in range(NUM_RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
    assert [process.exitcode for process in ranks] == [0] * NUM_RANKS
    lines = [line for rank in range(NUM_RANKS) for line in (out_dir / f"rank{rank}.jsonl").read_bytes().splitlines()]
    return [EVENT.validate_json(line) for line in lines]


def steps(events: list[Event]) -> list[StepEvent]:
    return [event for event in events if isinstance(event, StepEvent)]


def tokens(events: list[Event]) -> dict[str, list[int]]:
    """Those of rank 0."""
    found: dict[str, list[int]] = {}
    for step in steps(events):
        for name, token in zip(step.requests, step.argmax, strict=True):
            if step.rank == 0:
                found.setdefault(name, []).append(token)
    return found


def right_tokens() -> dict[str, list[int]]:
    golden = read_golden(shipped.golden_dir() / "probe" / "twelve.jsonl")
    return {name: list(golden.prompt(name).ids) for name in PROMPTS}


def plant_nothing(rank: int) -> None:
    """The engine as it is."""


def plant_own_logits(rank: int) -> None:
    """Rank 1 spoils its copy of the gathered logits by less than any margin, in the sixth step and after."""
    gather, calls = StagedCollectives.gather_logits, []

    def spoiled(self: StagedCollectives, logits: torch.Tensor) -> None:
        gather(self, logits)
        calls.append(None)
        if rank == 1 and len(calls) > 5:
            logits[0, 0] -= 1.0

    StagedCollectives.gather_logits = spoiled  # type: ignore[method-assign]


def plant_unwaited_last_reduce(rank: int) -> None:
    """The sum of the last layer is joined at the end of the step, after the LM head has read this rank's partial."""
    join = StagedCollectives._join

    def late(self: StagedCollectives, ticket: Ticket) -> None:
        if ticket.site == LAST_REDUCE:
            self._in_flight.append(ticket)
        else:
            join(self, ticket)

    StagedCollectives._join = late  # type: ignore[method-assign]


def test_ranks_of_a_right_engine_agree_in_every_bit(tmp_path: Path) -> None:
    events = run_ranks(tmp_path, plant_nothing, graph="off")
    assert tokens(events) == right_tokens()
    assert all(step.logits_sha for step in steps(events)), "an audit brings the hashes with it"
    assert (first_split(steps(events)), first_disagreement(steps(events))) == (None, None)


def test_logits_that_part_on_one_rank_are_seen_in_their_step_though_tokens_agree(tmp_path: Path) -> None:
    events = run_ranks(tmp_path, plant_own_logits, graph="off")
    assert tokens(events) == right_tokens()
    assert first_disagreement(steps(events)) is None
    split = first_split(steps(events))
    assert split is not None
    assert (split.step, split.prompt) == (5, steps(events)[5].requests[0])
    assert len(set(split.digests.values())) == 2


def test_a_missing_wait_in_the_last_layer_is_seen_by_the_audit(tmp_path: Path) -> None:
    events = run_ranks(tmp_path, plant_unwaited_last_reduce, graph="on", lanes=1, buckets="1")
    assert tokens(events) == right_tokens(), "nothing of it shows in tokens"
    findings = [f for event in events if isinstance(event, EvidenceEvent) for f in event.evidence.audit or ()]
    assert LAST_REDUCE in {finding.buffer for finding in findings}
    assert {finding.clause for finding in findings} == {"visibility"}

"""Owns one rank of the engine: load, capture, and the step loop that every rank runs alike."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from graphcheck.engine.audit import Auditor
from graphcheck.engine.batch import HostBatch, decode_batch, dummy_batch
from graphcheck.engine.blocks import BlockAllocator
from graphcheck.engine.breadcrumbs import Breadcrumbs
from graphcheck.engine.build import RankContext, RankParts, build
from graphcheck.engine.config import EngineConfig
from graphcheck.engine.consensus import Consensus
from graphcheck.engine.delays import DelayHooks
from graphcheck.engine.device import Device
from graphcheck.engine.errors import RequestError
from graphcheck.engine.events import Counters, FinishReport, StepReport
from graphcheck.engine.graph_runner import GraphRunner, RunnerCounters
from graphcheck.engine.graph_support import fallback_reason
from graphcheck.engine.graphs.base import GraphBackend, NoGraphs
from graphcheck.engine.hooks import HookChain
from graphcheck.engine.journal import JournalWriter
from graphcheck.engine.request import Request
from graphcheck.engine.scheduler import Scheduler, Step
from graphcheck.engine.sites import FixSites
from graphcheck.engine.step import HostMirror
from graphcheck.engine.step_io import StepInputs, StepOutputs

NUM_TOP = 4
"""How many ids of each row the step events carry on request."""

Report = Callable[[StepReport | FinishReport | RequestError], None]


@dataclass(frozen=True)
class _Done:
    """How a step was run, and what it left."""

    outputs: StepOutputs
    bucket: int | None = None
    replayed: bool = False
    fallback: str | None = None


class Engine:
    """One rank. `load`, then `capture` (does nothing with graphs off), then `run` any number of times, then `close`.

    The process group must exist before `load` if config.tp > 1. On a CPU use one thread: two round differently.
    """

    def __init__(
        self,
        folder: Path,
        config: EngineConfig,
        *,
        rank: int,
        device: Device,
        journal: JournalWriter,
    ) -> None:
        self.config = config
        self._folder, self._device, self._journal = folder, device, journal
        self._backend: GraphBackend = device.make_graphs(trace=config.audit) if config.graph else NoGraphs()
        self._context = RankContext(
            config=config,
            rank=rank,
            device=device,
            backend=self._backend,
            journal=journal,
            sites=FixSites(config.fixes_off),
            mirror=HostMirror(dummy_batch(1, max_blocks=config.max_blocks)),
            hooks=HookChain(
                *([DelayHooks(config.delays, self._backend, device)] if config.delays else []),
                *([Breadcrumbs(journal, device)] if config.breadcrumbs else []),
            ),
        )
        self._consensus = Consensus(journal, rank, config.tp) if config.consensus else None
        self._runner: GraphRunner | None = None
        self._auditor: Auditor | None = None
        self._fallback = fallback_reason(config) if config.graph else None
        self._fallbacks: Counter[str] = Counter()
        self._eager_lane_tokens = 0

    @property
    def graph_backend(self) -> str | None:
        """Name of the backend that this rank captured its graphs on; None where it captured none."""
        return self._backend.name if self._runner is not None else None

    @property
    def runner(self) -> GraphRunner | None:
        """The graph runner; None with graphs off, and where decode falls back."""
        return self._runner

    @property
    def parts(self) -> RankParts:
        """What `load` built."""
        return self._parts

    @torch.no_grad()
    def load(self) -> None:
        """Loads the rank's shards and allocates every buffer.

        Raises:
            CheckpointError, ConfigError: the folder or the settings cannot be run.
        """
        self._parts = build(self._folder, self._context)
        self._blocks = BlockAllocator(self.config.num_pages, self.config.page_size)

    @torch.no_grad()
    def capture(self) -> None:
        """Captures every bucket; a no-op with graphs off, or with settings that graphs do not support.

        Raises:
            CaptureError: names the op, the bucket and what to try.
        """
        if not self.config.graph or self._fallback is not None:
            return
        if self.config.audit:
            self._auditor = Auditor(self._parts.kv_cache)
        runner = GraphRunner(
            backend=self._backend,
            program=self._parts.program,
            buffers=self._parts.buffers,
            config=self.config,
            device=self._device,
            sites=self._context.sites,
            mirror=self._context.mirror,
            auditor=self._auditor,
        )
        runner.capture(self._journal.unit)
        self._runner = runner

    @torch.no_grad()
    def run(self, requests: Iterable[Request], report: Report) -> None:
        """Serves `requests` to their ends. A request that can never be served is reported, the others go on."""
        scheduler = Scheduler(lanes=self.config.lanes, context=self.config.context, blocks=self._blocks)
        for request in requests:
            try:
                self._check_vocabulary(request)
                scheduler.submit(request)
            except RequestError as error:
                report(error)
        while (step := scheduler.next_step()) is not None:
            self._journal.phase(step.phase)
            self._journal.step(step.number)
            started = time.perf_counter()
            done = self._read(step, self._prefill(step) if step.phase == "prefill" else self._decode(step), started)
            report(done)
            if self._consensus is not None:
                self._consensus.agree(step, done.next_ids)
            for finished in scheduler.commit(step, done.next_ids):
                sequence = finished.sequence
                report(FinishReport(sequence.request.id, finished.reason, len(sequence.output_ids)))

    def counters(self) -> Counters:
        """What this rank did so far."""
        replayed = self._runner.counters if self._runner else RunnerCounters()
        return Counters(
            captures=self._runner.num_captures if self._runner else 0,
            replays=replayed.replays,
            replayed_lane_tokens=replayed.lane_tokens,
            eager_lane_tokens=self._eager_lane_tokens,
            padded_lanes=replayed.padded_lanes,
            fallbacks=dict(self._fallbacks),
            collectives=self._parts.collectives.num_launched,
            sites=self._context.sites.counts(),
            breaches=tuple(self._auditor.breaches) if self._auditor else None,
        )

    def close(self) -> None:
        """Destroys the graphs; the communicator must still exist."""
        if self._runner is not None:
            self._runner.destroy()

    def _check_vocabulary(self, request: Request) -> None:
        vocab_size = self._parts.vocab_size
        token_ids = (*request.prompt_ids, *(request.forced_ids or ()))
        outside = [token for token in token_ids if not 0 <= token < vocab_size]
        if outside:
            raise RequestError(
                request.id,
                f"request {request.id}: token id {outside[0]} is outside the vocabulary of {vocab_size}; "
                "encode with this model's tokenizer",
            )

    def _prefill(self, step: Step) -> _Done:
        self._context.hooks.begin_step(0)
        (sequence,) = step.sequences
        size = self.config.page_size
        slots = [sequence.block_table[p // size] * size + p % size for p in range(len(sequence.request.prompt_ids))]
        outputs = self._parts.eager_outputs.rows(1)
        self._parts.program.prefill(
            self._int32(sequence.request.prompt_ids),
            self._int32(slots),
            torch.tensor([sequence.next_forced is not None], device=self._device.torch_device),
            self._int32([sequence.next_forced or 0]),
            outputs,
        )
        return _Done(outputs)

    def _decode(self, step: Step) -> _Done:
        batch = decode_batch(step.sequences, page_size=self.config.page_size, max_blocks=self.config.max_blocks)
        bucket = self.config.bucket_for(batch.rows)
        if self._runner is not None and bucket is not None:
            self._runner.prepare(batch)
            self._context.hooks.begin_step(self._runner.counters.replays + 1)
            return _Done(self._runner.replay(), bucket, replayed=True)
        if self._fallback is not None and bucket is not None:
            self._fallbacks[self._fallback] += 1
        rows = batch.rows if bucket is None or self.config.exact_shapes else bucket
        fallback = self._fallback if bucket is not None else None
        return _Done(self._decode_eager(batch, rows), rows if bucket is not None else None, fallback=fallback)

    def _decode_eager(self, batch: HostBatch, rows: int) -> StepOutputs:
        """The same padded shapes as a replay, but inputs of its own, and no captured buffer touched."""
        self._context.hooks.begin_step(0)
        padded = batch.padded(rows)
        self._context.mirror.batch = padded
        self._eager_lane_tokens += batch.rows
        inputs = StepInputs.from_host(padded, self._device)
        self._parts.program.decode(inputs, self._parts.eager_outputs.rows(rows))
        return self._parts.eager_outputs.rows(batch.rows)

    def _read(self, step: Step, done: _Done, started: float) -> StepReport:
        """The one place where a step's results come to the host."""
        with self._journal.waiting("wait_for_device"):
            self._device.wait_for_device()
        outputs, sequences = done.outputs, step.sequences
        next_ids, argmax_ids, finite = (
            tuple(tensor.tolist()) for tensor in (outputs.next_ids, outputs.argmax_ids, outputs.finite)
        )
        logits = outputs.logits[:, : self._parts.vocab_size]
        return StepReport(
            number=step.number,
            phase=step.phase,
            requests=tuple(sequence.request.id for sequence in sequences),
            index=tuple(len(sequence.output_ids) for sequence in sequences),
            argmax_ids=argmax_ids,
            next_ids=next_ids,
            finite=finite,
            bucket=done.bucket,
            replayed=done.replayed,
            fallback=done.fallback,
            seconds=time.perf_counter() - started,
            logits_sha=_digests(logits) if self.config.logits_digest else None,
            top=_best(logits, finite) if self.config.logits_top else None,
        )

    def _int32(self, values: Iterable[int]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.int32, device=self._device.torch_device)


def _digests(logits: torch.Tensor) -> tuple[str, ...]:
    """sha256 of each row's bytes."""
    return tuple(hashlib.sha256(row.tobytes()).hexdigest() for row in logits.cpu().contiguous().numpy())


def _best(logits: torch.Tensor, finite: Iterable[bool]) -> tuple[tuple[tuple[int, float], ...], ...]:
    """Each row's NUM_TOP best (id, logit), best first, of equal ones the lowest id; none where not all is finite."""
    values, ids = logits.sort(dim=-1, descending=True, stable=True)
    rows = zip(ids[:, :NUM_TOP].tolist(), values[:, :NUM_TOP].tolist(), finite, strict=True)
    return tuple(tuple(zip(best, at, strict=True)) if is_finite else () for best, at, is_finite in rows)

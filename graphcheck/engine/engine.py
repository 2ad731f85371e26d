"""Owns one rank of the engine: builds its parts, captures, and runs the step loop that every rank runs alike."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from graphcheck.engine.batch import HostBatch, decode_batch, dummy_batch
from graphcheck.engine.blocks import BlockAllocator
from graphcheck.engine.checkpoint import Checkpoint
from graphcheck.engine.collectives import LOGITS_SITE, Collectives, GlooCollectives, SingleRank
from graphcheck.engine.config import NUM_SHARDS, EngineConfig
from graphcheck.engine.errors import ConfigError, RequestError
from graphcheck.engine.events import Counters, FinishReport, StepReport
from graphcheck.engine.graph_runner import GraphRunner
from graphcheck.engine.graphs.base import GraphBackend, NoGraphs
from graphcheck.engine.graphs.tape import TapeBackend
from graphcheck.engine.hooks import Hooks, NoHooks
from graphcheck.engine.journal import JournalWriter
from graphcheck.engine.kv_cache import PagedKVCache
from graphcheck.engine.layers import RotaryEmbedding
from graphcheck.engine.llama import LlamaModel, reduce_sites
from graphcheck.engine.llama_config import LlamaConfig, read_config
from graphcheck.engine.numerics import padded_to, shards_of
from graphcheck.engine.rendezvous import Rendezvous
from graphcheck.engine.request import Request, Sequence
from graphcheck.engine.scheduler import Scheduler, Step
from graphcheck.engine.sites import FixSites
from graphcheck.engine.step import HostMirror, StepProgram
from graphcheck.engine.step_io import ContractBuffers, StepInputs, StepOutputs

Report = Callable[[StepReport | FinishReport | RequestError], None]


class Engine:
    """One rank. `load`, then `capture` (does nothing with graphs off), then `run` any number of times, then `close`.

    The process group must exist before `load` if config.tp > 1. One thread: two would round differently from one.
    """

    def __init__(
        self, folder: Path, config: EngineConfig, *, rank: int, journal: JournalWriter, hooks: Hooks | None = None
    ) -> None:
        self.config = config
        self._folder, self._rank, self._journal = folder, rank, journal
        self._hooks = hooks or NoHooks()
        self._device = torch.device("cpu")
        self._dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[config.dtype]
        self.sites = FixSites(config.fixes_off)
        self._backend: GraphBackend = TapeBackend() if config.graph else NoGraphs()
        self._blocks = BlockAllocator(config.num_pages, config.page_size)
        self._mirror = HostMirror(dummy_batch(1, max_blocks=config.max_blocks))
        self._runner: GraphRunner | None = None
        self._fallbacks: Counter[str] = Counter()
        self._eager_lane_tokens = 0
        self._num_steps = 0

    @property
    def graph_backend(self) -> str | None:
        return self._backend.name if self.config.graph else None

    @torch.no_grad()
    def load(self) -> None:
        """Reads the rank's shards and allocates every buffer.

        Raises:
            CheckpointError, ConfigError: the folder or the settings cannot be run.
        """
        config, model_config = self.config, read_config(self._folder)
        if config.context > model_config.max_positions:
            raise ConfigError(
                f"context = {config.context}: the model has {model_config.max_positions} positions; lower `context`"
            )
        shards = shards_of(self._rank, config.tp, NUM_SHARDS)
        with Checkpoint(self._folder, model_config) as checkpoint:
            weights = checkpoint.load(shards, self._dtype, self._device, self._journal.unit)
        self._vocab_size = model_config.vocab_size
        self._collectives = self._connect(model_config)
        rotary = RotaryEmbedding(model_config.head_dim, model_config.rope_theta, config.context, self._device)
        padded_vocab = padded_to(model_config.vocab_size, NUM_SHARDS)
        shard_vocab = padded_vocab // NUM_SHARDS
        kv_cache = PagedKVCache(
            num_layers=model_config.num_layers,
            num_shards=len(shards),
            num_pages=config.num_pages,
            page_size=config.page_size,
            kv_heads=padded_to(model_config.num_kv_heads, NUM_SHARDS) // NUM_SHARDS,
            head_dim=model_config.head_dim,
            dtype=self._dtype,
            device=self._device,
        )
        self._program = StepProgram(
            model=LlamaModel(model_config, weights, rotary, self._collectives.reduce, self._hooks),
            kv_cache=kv_cache,
            collectives=self._collectives,
            sites=self.sites,
            mirror=self._mirror,
            vocab_size=model_config.vocab_size,
            own_vocab=range(shards.start * shard_vocab, shards.stop * shard_vocab),
        )
        self._captured_buffers, eager = (
            ContractBuffers.allocate(
                lanes=config.rows, blocks=config.max_blocks, vocab=padded_vocab, device=self._device
            )
            for _ in range(2)
        )
        self._eager_outputs = eager.outputs

    @torch.no_grad()
    def capture(self) -> None:
        """Captures every bucket; a no-op with graphs off.

        Raises:
            CaptureError: names the op, the bucket and what to try.
        """
        if not self.config.graph:
            return
        runner = GraphRunner(
            backend=self._backend,
            program=self._program,
            buffers=self._captured_buffers,
            buckets=self.config.buckets,
            sites=self.sites,
            mirror=self._mirror,
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
            self._num_steps += 1
            self._journal.phase(step.phase)
            self._journal.step(self._num_steps)
            started = time.perf_counter()
            outputs, bucket, replayed = self._prefill(step) if step.phase == "prefill" else self._decode(step)
            done = self._read(step, outputs, bucket, replayed, started)
            report(done)
            for finished in scheduler.commit(step, done.next_ids):
                sequence = finished.sequence
                report(FinishReport(sequence.request.id, finished.reason, len(sequence.output_ids)))

    def counters(self) -> Counters:
        """What this rank did so far."""
        runner = self._runner
        return Counters(
            captures=runner.num_captures if runner else 0,
            replays=runner.num_replays if runner else 0,
            replayed_lane_tokens=runner.num_replayed_lane_tokens if runner else 0,
            eager_lane_tokens=self._eager_lane_tokens,
            padded_lanes=runner.num_padded_lanes if runner else 0,
            fallbacks=dict(self._fallbacks),
            collectives=self._collectives.num_launched,
            sites=self.sites.counts(),
        )

    def close(self) -> None:
        """Destroys the graphs; the communicator must still exist."""
        if self._runner is not None:
            self._runner.destroy()

    def _connect(self, model_config: LlamaConfig) -> Collectives:
        if self.config.tp == 1:
            return SingleRank()
        names = [*reduce_sites(model_config.num_layers), LOGITS_SITE]
        return GlooCollectives(
            rank=self._rank,
            tp=self.config.tp,
            backend=self._backend,
            rendezvous=Rendezvous(self._journal, self._rank, self.config.tp, names),
            journal=self._journal,
            sites=self.sites,
        )

    def _check_vocabulary(self, request: Request) -> None:
        outside = [token for token in request.prompt_ids if not 0 <= token < self._vocab_size]
        if outside:
            raise RequestError(
                request.id,
                f"request {request.id}: token id {outside[0]} is outside the vocabulary of {self._vocab_size}; "
                "encode the prompt with this model's tokenizer",
            )

    def _prefill(self, step: Step) -> tuple[StepOutputs, int | None, bool]:
        (sequence,) = step.sequences
        size = self.config.page_size
        slots = [sequence.block_table[p // size] * size + p % size for p in range(len(sequence.request.prompt_ids))]
        outputs = self._eager_outputs.rows(1)
        self._program.prefill(
            self._int32(sequence.request.prompt_ids),
            self._int32(slots),
            torch.tensor([sequence.next_forced is not None], device=self._device),
            self._int32([sequence.next_forced or 0]),
            outputs,
        )
        return outputs, None, False

    def _decode(self, step: Step) -> tuple[StepOutputs, int | None, bool]:
        batch = decode_batch(step.sequences, page_size=self.config.page_size, max_blocks=self.config.max_blocks)
        bucket = next((bucket for bucket in self.config.buckets if bucket >= batch.rows), None)
        if self._runner is not None and bucket is not None:
            return self._runner.replay(batch), bucket, True
        return self._decode_eager(batch, bucket or batch.rows), bucket, False

    def _decode_eager(self, batch: HostBatch, rows: int) -> StepOutputs:
        """The same padded shapes as a replay, but inputs of its own, and no captured buffer touched."""
        self._mirror.batch = batch.padded(rows)
        self._eager_lane_tokens += batch.rows
        self._program.decode(StepInputs.from_host(self._mirror.batch, self._device), self._eager_outputs.rows(rows))
        return self._eager_outputs.rows(batch.rows)

    def _read(self, step: Step, outputs: StepOutputs, bucket: int | None, replayed: bool, started: float) -> StepReport:
        """The one place where a step's results come to the host."""
        sequences: tuple[Sequence, ...] = step.sequences
        next_ids, argmax_ids, finite = (
            tuple(tensor.tolist()) for tensor in (outputs.next_ids, outputs.argmax_ids, outputs.finite)
        )
        return StepReport(
            number=step.number,
            phase=step.phase,
            requests=tuple(sequence.request.id for sequence in sequences),
            index=tuple(len(sequence.output_ids) for sequence in sequences),
            argmax_ids=argmax_ids,
            next_ids=next_ids,
            finite=finite,
            bucket=bucket,
            replayed=replayed,
            fallback=None,
            seconds=time.perf_counter() - started,
            logits_sha=_digests(outputs.logits[:, : self._vocab_size]) if self.config.logits_digest else None,
        )

    def _int32(self, values: Iterable[int]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.int32, device=self._device)


def _digests(logits: torch.Tensor) -> tuple[str, ...]:
    """sha256 of each row's bytes."""
    return tuple(hashlib.sha256(row.contiguous().numpy().tobytes()).hexdigest() for row in logits)

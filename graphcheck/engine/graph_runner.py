"""Owns captured decode: which steps a graph can serve, refreshing its buffers, replaying it, and freeing it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from graphcheck.engine.audit import Auditor
from graphcheck.engine.batch import HostBatch, dummy_batch, twin_batch
from graphcheck.engine.config import EngineConfig
from graphcheck.engine.contract import INPUTS
from graphcheck.engine.device import Device
from graphcheck.engine.errors import ContractError
from graphcheck.engine.graphs.base import Graph, GraphBackend, GraphKey
from graphcheck.engine.sites import FixSites
from graphcheck.engine.step import HostMirror, StepProgram
from graphcheck.engine.step_io import ContractBuffers, StepInputs, StepOutputs


@dataclass
class RunnerCounters:
    """What the runner did; `lane_tokens` counts live lanes only."""

    replays: int = 0
    lane_tokens: int = 0
    padded_lanes: int = 0


class GraphRunner:
    """capture, prepare, replay, destroy. Works without a scheduler.

    `prepare` refreshes the buffers for one batch and `replay` runs the graph on them, once. A `prepare` that raises
    half-way leaves a runner that refuses to replay, never one that replays mixed state.
    """

    def __init__(
        self,
        *,
        backend: GraphBackend,
        program: StepProgram,
        buffers: ContractBuffers,
        config: EngineConfig,
        device: Device,
        sites: FixSites,
        mirror: HostMirror,
        auditor: Auditor | None = None,
    ) -> None:
        self._backend, self._program, self._config = backend, program, config
        self._device, self._sites, self._mirror = device, sites, mirror
        self._auditor = auditor
        self._inputs: StepInputs = buffers.inputs
        self._outputs: StepOutputs = buffers.outputs
        self._graphs: dict[GraphKey, Graph] = {}
        self._visits: dict[GraphKey, dict[str, int]] = {}
        self._in_place = True
        self._prepared: tuple[GraphKey, int] | None = None
        self.counters = RunnerCounters()

    @property
    def num_captures(self) -> int:
        return len(self._graphs)

    @property
    def inputs(self) -> StepInputs:
        """The buffers that `prepare` refreshes, at full size."""
        return self._inputs

    def capture(self, captured: Callable[[], None]) -> None:
        """Captures every bucket, largest first, on dummy lanes; calls `captured` after each.

        Every rank captures in this order, since captured collectives must meet their peers'.

        Raises:
            CaptureError: names the op, the bucket and what to try.
        """
        for bucket in reversed(self._config.buckets):
            key = _key(bucket)
            step = partial(self._program.decode, self._inputs.rows(bucket), self._outputs.rows(bucket))
            dummy = dummy_batch(bucket, max_blocks=self._config.max_blocks)
            self._fill(dummy)
            with self._sites.phase("prepare"):
                self._backend.warm_up(step)
            with self._sites.capturing() as visits:
                self._graphs[key] = self._backend.capture(key, step)
            self._visits[key] = visits
            if self._auditor is not None:
                self._audit_capture(self._auditor, key, step)
                self._fill(dummy)
            captured()

    def _audit_capture(self, auditor: Auditor, key: GraphKey, step: Callable[[], None]) -> None:
        """Captures the step once more with other contents, for the auditor to compare."""
        config = self._config
        self._fill(twin_batch(key.bucket, page_size=config.page_size, max_blocks=config.max_blocks))
        with self._sites.phase("prepare"):
            twin = self._backend.capture(key, step)
        auditor.captured(key, self._graphs[key], twin, self._inputs)
        twin.destroy()

    def _fill(self, batch: HostBatch) -> None:
        self._mirror.batch = batch
        for spec in INPUTS:
            self._device.upload(getattr(self._inputs, spec.name)[: batch.rows], getattr(batch, spec.name))

    def prepare(self, batch: HostBatch) -> None:
        """Refreshes the buffers of the graph that serves `batch` ([rows], live lanes only).

        Raises:
            ContractError: no graph was captured for this many lanes.
        """
        self._prepared = None
        bucket = self._config.bucket_for(batch.rows)
        if bucket is None or _key(bucket) not in self._graphs:
            raise ContractError(
                f"a step of {batch.rows} lanes: no captured bucket serves it; capture first, or run it eager"
            )
        self._mirror.batch = batch.padded(bucket)
        self._refresh(self._mirror.batch, batch.rows)
        if self._auditor is not None:
            self._auditor.before_replay(self._graphs[_key(bucket)], self._inputs, self._mirror.batch, batch.rows)
        self._prepared = _key(bucket), batch.rows

    def replay(self) -> StepOutputs:
        """Replays the prepared step; returns the live rows of the graph's own output buffers.

        Raises:
            ContractError: nothing is prepared, or the last `prepare` failed.
        """
        if self._prepared is None:
            raise ContractError("replay: the buffers hold no whole batch; prepare one first")
        key, rows = self._prepared
        self._prepared = None
        self._graphs[key].replay()
        if self._auditor is not None:
            self._auditor.after_replay()
        self._sites.replayed(self._visits[key])
        self.counters.replays += 1
        self.counters.lane_tokens += rows
        self.counters.padded_lanes += key.bucket - rows
        return self._outputs.rows(rows)

    def rebind(self, name: str, tensor: torch.Tensor) -> None:
        """Puts another tensor in the place of an input buffer; refused as soon as a graph holds the buffer.

        Raises:
            ContractError: names the buffer and its owner.
        """
        if self._graphs and self._in_place:
            owner = next(spec.owner for spec in INPUTS if spec.name == name)
            raise ContractError(
                f"buffer {name} (owner: {owner}) is captured: it is never rebound or reallocated; copy into it"
            )
        self._inputs = replace(self._inputs, **{name: tensor})

    def destroy(self) -> None:
        """Frees every graph; must come before the communicator goes."""
        self._prepared = None
        for graph in self._graphs.values():
            graph.destroy()
        self._graphs.clear()

    def _refresh(self, batch: HostBatch, live: int) -> None:
        """Three clauses of the contract, and the one site of each of their fixes: contents, tail, identity."""
        with self._sites.phase("prepare"):
            refresh_metadata = self._sites.on("metadata-refresh")
            # A full batch has no spare lane that could be cleared: the site is not reached.
            clear_tail = batch.rows > live and self._sites.on("pad-clear")
            self._in_place = self._sites.on("stable-buffers")
        rows = batch.rows if clear_tail else live
        for spec in INPUTS:
            if spec.owner == "ids" or refresh_metadata:
                self._put(spec.name, getattr(batch, spec.name)[:rows])

    def _put(self, name: str, values: np.ndarray) -> None:
        buffer: torch.Tensor = getattr(self._inputs, name)
        if not self._in_place:
            buffer = buffer.clone()
            self.rebind(name, buffer)
        self._device.upload(buffer[: len(values)], values)


def _key(bucket: int) -> GraphKey:
    return GraphKey("decode", 1, bucket)

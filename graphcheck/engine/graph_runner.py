"""Owns captured decode: which steps a graph can serve, refreshing its buffers, replaying it, and freeing it."""

from collections.abc import Callable
from functools import partial

import torch

from graphcheck.engine.batch import HostBatch, dummy_batch
from graphcheck.engine.contract import INPUTS
from graphcheck.engine.errors import ContractError
from graphcheck.engine.graphs.base import Graph, GraphBackend, GraphKey
from graphcheck.engine.sites import FixSites
from graphcheck.engine.step import HostMirror, StepProgram
from graphcheck.engine.step_io import ContractBuffers, StepOutputs


class GraphRunner:
    """Four verbs: can_run, capture, replay, destroy. Works without a scheduler."""

    def __init__(
        self,
        *,
        backend: GraphBackend,
        program: StepProgram,
        buffers: ContractBuffers,
        buckets: tuple[int, ...],
        sites: FixSites,
        mirror: HostMirror,
    ) -> None:
        self._backend, self._program, self._buffers = backend, program, buffers
        self._buckets, self._sites, self._mirror = buckets, sites, mirror
        self._graphs: dict[GraphKey, Graph] = {}
        self._visits: dict[GraphKey, dict[str, int]] = {}
        self.num_replays = 0
        self.num_replayed_lane_tokens = 0
        self.num_padded_lanes = 0

    @property
    def num_captures(self) -> int:
        return len(self._graphs)

    def can_run(self, rows: int) -> int | None:
        """The bucket that serves a decode step of `rows` lanes, or None if no graph does."""
        return next((bucket for bucket in self._buckets if bucket >= rows), None)

    def capture(self, captured: Callable[[], None]) -> None:
        """Captures every bucket, largest first, on dummy lanes; calls `captured` after each.

        Every rank captures in this order, since captured collectives must meet their peers'.

        Raises:
            CaptureError: names the op, the bucket and what to try.
        """
        for bucket in reversed(self._buckets):
            key = _key(bucket)
            batch = dummy_batch(bucket, max_blocks=self._buffers.inputs.block_tables.shape[1])
            self._mirror.batch = batch
            self._write(batch, tuple(spec.name for spec in INPUTS))
            inputs, outputs = self._buffers.input_rows(bucket), self._buffers.outputs.rows(bucket)
            with self._sites.capturing() as visits:
                self._graphs[key] = self._backend.capture(key, partial(self._program.decode, inputs, outputs))
            self._visits[key] = visits
            captured()

    def replay(self, batch: HostBatch) -> StepOutputs:
        """Replays the step of `batch` ([rows], live lanes only); returns the graph's own buffers, live rows only.

        Raises:
            ContractError: no graph was captured for this many lanes.
        """
        bucket = self.can_run(batch.rows)
        if bucket is None or _key(bucket) not in self._graphs:
            raise ContractError(
                f"a step of {batch.rows} lanes: no captured bucket serves it; capture first, or run eager"
            )
        key = _key(bucket)
        self._mirror.batch = batch.padded(bucket)
        self._refresh(self._mirror.batch)
        self._graphs[key].replay()
        self._sites.replayed(self._visits[key])
        self.num_replays += 1
        self.num_replayed_lane_tokens += batch.rows
        self.num_padded_lanes += bucket - batch.rows
        return self._buffers.outputs.rows(batch.rows)

    def destroy(self) -> None:
        """Frees every graph; must come before the communicator goes."""
        for graph in self._graphs.values():
            graph.destroy()
        self._graphs.clear()

    def _refresh(self, batch: HostBatch) -> None:
        """The contract's contents clause, and the one site of its fix."""
        with self._sites.phase("prepare"):
            refresh_metadata = self._sites.on("metadata-refresh")
        owners = ("ids", "metadata") if refresh_metadata else ("ids",)
        self._write(batch, tuple(spec.name for spec in INPUTS if spec.owner in owners))

    def _write(self, batch: HostBatch, names: tuple[str, ...]) -> None:
        """Copies inputs of a padded batch, spare lanes included, into the leading rows of their buffers, in place."""
        for name in names:
            getattr(self._buffers.inputs, name)[: batch.rows].copy_(torch.from_numpy(getattr(batch, name)))


def _key(bucket: int) -> GraphKey:
    return GraphKey("decode", 1, bucket)

"""Owns the translation of the engine's reports and errors into the events of the schema."""

import time
import traceback
from typing import Literal, TextIO

import torch

from graphcheck.engine.audit import Breach
from graphcheck.engine.device import Device
from graphcheck.engine.engine import Engine
from graphcheck.engine.errors import RequestError
from graphcheck.engine.events import FinishReport, StepReport
from graphcheck.schema.events import (
    ErrorEvent,
    Event,
    EvidenceEvent,
    FinishedEvent,
    LoadedEvent,
    Phase,
    PhaseEvent,
    StepEvent,
)
from graphcheck.schema.evidence import AuditFinding, Backend, Evidence
from graphcheck.schema.provenance import Loaded
from graphcheck.targets.loaded import loaded

_OUT_OF_MEMORY = ("can't allocate memory", "out of memory")
"""What torch's CPU allocator says, in a plain RuntimeError, and drivers, whose errors may come inside another."""


class EventWriter:
    """Writes one rank's events, a JSON line each, flushed at once."""

    def __init__(self, rank: int, out: TextIO) -> None:
        self._rank, self._out = rank, out
        self._born = self._entered = time.monotonic()
        self._phase: Phase = "start"
        self._seconds: dict[str, float] = {}
        self._loaded: Loaded | None = None
        self.run = 0
        """Which pass over the suite is running."""

    def phase(self, phase: Phase, seconds_ago: float = 0.0) -> None:
        """The rank entered a phase; the time spent in the last one is kept for the evidence."""
        now = time.monotonic() - seconds_ago
        self._seconds = self._seconds_until(now)
        self._phase, self._entered = phase, now
        self._write(PhaseEvent(rank=self._rank, phase=phase, seconds=now - self._born))

    def report(self, report: StepReport | FinishReport | RequestError) -> None:
        """The engine's callback."""
        match report:
            case StepReport():
                self._step(report)
            case FinishReport():
                self._write(
                    FinishedEvent(
                        rank=self._rank,
                        request=report.request,
                        run=self.run,
                        reason=report.reason,
                        num_tokens=report.num_tokens,
                    )
                )
            case RequestError():
                self.error(report)

    def error(self, error: Exception) -> None:
        """An exception as its class of outcome; in full in the rank's log, unless it is a request's own."""
        if not isinstance(error, RequestError):
            traceback.print_exception(error)
        self._write(
            ErrorEvent(
                rank=self._rank,
                kind=_kind(error),
                error=type(error).__name__,
                message=str(error),
                phase=self._phase,
                request=error.request_id if isinstance(error, RequestError) else None,
                traceback="".join(traceback.format_exception(error)),
            )
        )

    def loaded(self) -> None:
        """What this process has loaded by now, unless that was said already."""
        now = loaded()
        if now != self._loaded:
            self._loaded = now
            self._write(LoadedEvent(rank=self._rank, loaded=now))

    def evidence(self, engine: Engine, device: Device, host_memory_bytes: int) -> None:
        """The rank's counters, once its work is done."""
        counters, device_bytes = engine.counters(), device.peak_memory_bytes()
        config = engine.config
        backend = Backend(
            graph=engine.graph_backend,
            device=config.device,
            device_name=device.name,
            collectives=config.allreduce if config.tp > 1 else None,
        )
        evidence = Evidence(
            backend=backend,
            gpu=device.gpu,
            captures=counters.captures,
            replays=counters.replays,
            replayed_lane_tokens=counters.replayed_lane_tokens,
            eager_lane_tokens=counters.eager_lane_tokens,
            padded_lanes=counters.padded_lanes,
            fallbacks=counters.fallbacks,
            largest_bucket=config.buckets[-1],
            sites=counters.sites,
            collectives=counters.collectives,
            peak_memory_bytes=host_memory_bytes if device_bytes is None else device_bytes,
            audit=_findings(counters.breaches),
            seconds=self._seconds_until(time.monotonic()),
        )
        self._write(EvidenceEvent(rank=self._rank, evidence=evidence))

    def _seconds_until(self, now: float) -> dict[str, float]:
        """Phase -> seconds, the current one included: prefill and decode alternate, so that each has many stretches."""
        current = self._seconds.get(self._phase, 0.0) + now - self._entered
        return self._seconds | {self._phase: current}

    def _step(self, report: StepReport) -> None:
        if report.phase != self._phase:
            # A step is reported when it has ended; its phase began with it.
            self.phase(report.phase, report.seconds)
        self._write(
            StepEvent(
                rank=self._rank,
                step=report.number,
                run=self.run,
                phase=report.phase,
                requests=report.requests,
                index=report.index,
                argmax=report.argmax_ids,
                ids=report.next_ids,
                finite=report.finite,
                live=len(report.requests),
                bucket=report.bucket,
                replayed=report.replayed,
                fallback=report.fallback,
                seconds=report.seconds,
                logits_sha=report.logits_sha,
                top=report.top,
            )
        )

    def _write(self, event: Event) -> None:
        self._out.write(event.model_dump_json(exclude_none=True) + "\n")
        self._out.flush()


def _findings(breaches: tuple[Breach, ...] | None) -> tuple[AuditFinding, ...] | None:
    return None if breaches is None else tuple(AuditFinding(**vars(breach)) for breach in breaches)


def _kind(error: Exception) -> Literal["request", "oom", "crash"]:
    if isinstance(error, RequestError):
        return "request"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY):
        return "oom"
    return "crash"

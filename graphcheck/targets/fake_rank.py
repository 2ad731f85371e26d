"""Owns what one rank of the fake target does, event by event, and where in its life a fault strikes."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from graphcheck.schema.base import AxisValue
from graphcheck.schema.events import (
    ErrorEvent,
    Event,
    EvidenceEvent,
    ExitEvent,
    FinishedEvent,
    Phase,
    PhaseEvent,
    StepEvent,
)
from graphcheck.schema.evidence import AuditFinding, Backend, Evidence
from graphcheck.schema.journal import Journal, Tag
from graphcheck.schema.suite import Request, Workload
from graphcheck.targets.fake_answers import Answer, right_answer, spoiled

STRIKES: tuple[Phase, ...] = ("start", "load", "capture", "prefill", "decode", "teardown")
"""Phases in which a fault of the third decode step may strike instead."""

_FAULT_STEP = 3
_SLOW_SECONDS = 5.0
_STEP_SECONDS = 0.001
_BEST_LOGIT = 4.0
_MARGIN = 2.5
_BREACH = AuditFinding(clause="contents", buffer="positions", detail="lane 0 holds 3, not 4", replay=1)

Events = Sequence[Event]


@dataclass
class _Counters:
    replays: int = 0
    replayed_lane_tokens: int = 0
    eager_lane_tokens: int = 0
    padded_lanes: int = 0
    fallbacks: int = 0


@dataclass
class FakeRank:
    """One rank. `advance` lets it do the next thing; between two calls it stands still."""

    rank: int
    settings: Mapping[str, AxisValue]
    fault: str
    workload: Workload
    vocab_size: int
    sites: dict[str, dict[str, int]] = field(default_factory=dict)
    alive: bool = True
    released: bool = False
    _phase: Phase = "start"
    _step: int = 0
    _num_decodes: int = 0
    _collective: int = 0
    _unit: int = 0
    _finished: bool = False
    _at_work: bool = False
    _waiting: str | None = None
    _waited: float = 0.0
    _rows: int = 0
    _counters: _Counters = field(default_factory=_Counters)

    def __post_init__(self) -> None:
        self._is_last = self.rank == int(self.settings["tp"]) - 1
        self._buckets = tuple(int(bucket) for bucket in str(self.settings["buckets"]).split(","))
        self._captures = self.settings["graph"] == "on" or self.fault == "captures"
        self._fed = {request.id: request.forced_ids for request in self.workload.requests if request.forced_ids}
        self._life = self._live()

    def advance(self) -> Events:
        """What this rank reports next; nothing if it stands still or is gone."""
        events = next(self._life, ()) if self.alive else ()
        self.alive = self.alive and not any(isinstance(event, ExitEvent) for event in events)
        return events

    def pass_time(self, seconds: float) -> None:
        self._waited += seconds

    def journal(self) -> Journal:
        last = range(max(1, self._collective - 1), self._collective + 1)
        tags = (Tag(number=n, kind="reduce", rows=self._rows, nbytes=4 * self._rows, site="layers.0") for n in last)
        return Journal(
            rank=self.rank,
            phase=self._phase,
            step=self._step,
            collective=self._collective,
            unit=self._unit,
            beat=1,
            finished=self._finished,
            waiting=self._waiting,
            waiting_seconds=self._waited if self._waiting else None,
            tags=tuple(tags),
        )

    def stack(self, number: int) -> str:
        """Innermost frame first; dump `number` shows another line of a rank that is at work."""
        calls = [f"0 in {self._waiting}"] if self._waiting else []
        calls += [f"{number if self._at_work else 0} in step", "1 in main"]
        return "\n".join(f'  File "fake.py", line {call}' for call in calls)

    def _live(self) -> Iterator[Events]:
        yield from self._start()
        requests = list(self.workload.requests)
        if self.fault == "request_error":
            yield [self._error("request", "RequestError", "does not fit the context", requests[0].id)]
        if self.fault in ("request_error", "missing"):
            requests.pop(0)
        lanes = int(self.settings["lanes"])
        for run in range(self.workload.passes):
            for start in range(0, len(requests), lanes):
                yield from self._wave(run, requests[start : start + lanes])
        yield [*self._evidence(), *self._enter("done")]
        self._finished = True
        while not self.released:
            yield ()
        yield self._enter("teardown")
        yield from self._strike("teardown")
        while self.fault == "hang_teardown" and self._is_last:
            yield ()
        yield self._exit(status=7 if self.fault == "bad_exit" and self._is_last else 0)

    def _start(self) -> Iterator[Events]:
        yield self._enter("start")
        yield from self._strike("start")
        yield self._enter("load")
        yield from self._strike("load")
        if self.fault == "oom" and self._is_last:
            yield [self._error("oom", "MemoryError", "cannot allocate the weights"), *self._exit(status=1)]
        self._unit += 1
        if self._captures:
            yield self._enter("capture")
            yield from self._strike("capture")
            while self.fault == "hang_capture":
                yield ()
            self._unit += len(self._buckets)

    def _wave(self, run: int, requests: Sequence[Request]) -> Iterator[Events]:
        """A batch of prompts: each is prefilled, then they decode together until the last one has ended."""
        answers = {request.id: self._answer(request) for request in requests}
        if self._step == 0:
            yield self._enter("prefill")
            yield from self._strike("prefill")
        for prompt, answer in answers.items():
            yield self._step_events(run, "prefill", 0, {prompt: answer})
        position = 1
        while live := {prompt: answer for prompt, answer in answers.items() if len(answer.ids) > position}:
            self._num_decodes += 1
            if self._num_decodes == _FAULT_STEP:
                yield from self._strike("decode")
            yield self._step_events(run, "decode", position, live)
            position += 1

    def _answer(self, request: Request) -> Answer:
        return spoiled(
            right_answer(request, self.vocab_size),
            self.fault,
            self.vocab_size,
            is_first=request.id == self.workload.requests[0].id,
            is_last_rank=self._is_last,
            replayed=self._captures,
            forced=request.id in self._fed,
        )

    def _strike(self, phase: Phase) -> Iterator[Events]:
        if self.settings["strikes"] == phase:
            yield from self._mishap()

    def _mishap(self) -> Iterator[Events]:
        """What strikes once, in the third decode step unless another phase is asked for."""
        fault, victim = self.fault, self._is_last
        parted = fault == "part" and not self._fed
        if fault == "slow":
            self._at_work, begun = True, self._waited
            while self._waited < begun + _SLOW_SECONDS:
                yield ()
            self._at_work = False
        if fault == "hang" or parted:
            self._waiting = "wait_for_peers"
            self._rows += 0 if parted else self.rank
        self._at_work = fault == "spin"
        while parted or fault in ("hang", "spin", "churn") or (fault == "hang_one_rank" and victim):
            self._collective += fault == "churn"
            yield ()
        if fault == "garbage" and victim:
            yield [self._error("crash", "GarbledEvent", "the last rank wrote b'\\x00': not an event of its own")]
        if fault == "leave" and victim:
            yield self._exit(status=0)
        if fault == "signal" and victim:
            yield self._exit(signal=signal.SIGSEGV)
        if fault == "raise" and victim:
            yield [self._error("crash", "ValueError", "no such page"), *self._exit(status=1)]
        if fault in ("signal", "raise"):
            yield [self._error("crash", "RuntimeError", "Connection closed by peer"), *self._exit(status=1)]

    def _step_events(
        self, run: int, phase: Literal["prefill", "decode"], position: int, live: Mapping[str, Answer]
    ) -> Events:
        """One step that gives each prompt of `live` its token at `position`."""
        events = [] if phase == self._phase else list(self._enter(phase))
        bucket = next((bucket for bucket in self._buckets if bucket >= len(live)), None)
        covered = phase == "decode" and self._captures and bucket is not None
        replayed = covered and not self._avoids_graphs()
        fallback = "kv_dtype" if covered and self.fault == "fallback" else None
        if phase == "decode":
            self._count(len(live), bucket if replayed else None, fallback)
        self._step += 1
        self._collective += 2
        self._rows = len(live)
        picked = tuple(answer.ids[position] for answer in live.values())
        fed = tuple(
            self._fed[prompt][position] if prompt in self._fed else live[prompt].ids[position] for prompt in live
        )
        events.append(
            StepEvent(
                rank=self.rank,
                step=self._step,
                run=run,
                phase=phase,
                requests=tuple(live),
                index=(position,) * len(live),
                argmax=picked,
                ids=fed,
                finite=tuple(answer.finite[position] for answer in live.values()),
                live=len(live),
                bucket=bucket if phase == "decode" else None,
                replayed=replayed,
                fallback=fallback,
                seconds=_STEP_SECONDS,
                logits_sha=self._digests(live) if self.settings["logits"] == "digest" else None,
                top=tuple(map(self._top, picked, fed)) if self.settings["logits"] == "top" else None,
            )
        )
        return events + [
            FinishedEvent(
                rank=self.rank,
                request=prompt,
                run=run,
                reason="stop" if self.fault == "wrong_end" and prompt == self.workload.requests[0].id else "length",
                num_tokens=len(answer.ids),
            )
            for prompt, answer in live.items()
            if len(answer.ids) == position + 1
        ]

    def _digests(self, live: Mapping[str, Answer]) -> tuple[str, ...]:
        own = self.fault == "split" and self._is_last and self._num_decodes >= _FAULT_STEP
        return (f"of rank {self.rank}" if own else "of every rank",) * len(live)

    def _top(self, picked: int, right: int) -> tuple[tuple[int, float], ...]:
        """The best two: a right token stands far above the next id, a wrong one level with the right token."""
        if picked == right:
            return ((picked, _BEST_LOGIT), ((picked + 1) % self.vocab_size, _BEST_LOGIT - _MARGIN))
        return ((picked, _BEST_LOGIT), (right, _BEST_LOGIT))

    def _avoids_graphs(self) -> bool:
        return self.fault in ("no_replay", "fallback") or (self.fault == "one_rank_eager" and self._is_last)

    def _count(self, live: int, replayed_bucket: int | None, fallback: str | None) -> None:
        if replayed_bucket is None:
            self._counters.eager_lane_tokens += live
        else:
            self._counters.replays += 1
            self._counters.replayed_lane_tokens += live
            self._counters.padded_lanes += replayed_bucket - live
        self._counters.fallbacks += fallback is not None

    def _evidence(self) -> Events:
        if self.fault == "unwitnessed":
            return []
        counters = self._counters
        evidence = Evidence(
            backend=Backend(graph="fake" if self._captures else None, device=str(self.settings["device"])),
            gpu=f"GPU-{self.rank}" if self.settings["device"] == "cuda" else None,
            captures=len(self._buckets) if self._captures else 0,
            replays=counters.replays,
            replayed_lane_tokens=counters.replayed_lane_tokens,
            eager_lane_tokens=counters.eager_lane_tokens,
            padded_lanes=counters.padded_lanes,
            fallbacks={"kv_dtype": counters.fallbacks} if counters.fallbacks else {},
            largest_bucket=self._buckets[-1],
            sites=self.sites,
            collectives=self._collective,
            audit=(_BREACH,) if self.fault == "breach" and self._captures else None,
        )
        return [EvidenceEvent(rank=self.rank, evidence=evidence)]

    def _enter(self, phase: Phase) -> Events:
        self._phase = phase
        return [PhaseEvent(rank=self.rank, phase=phase, seconds=self._waited)]

    def _error(
        self, kind: Literal["request", "oom", "crash"], error: str, message: str, request: str | None = None
    ) -> ErrorEvent:
        return ErrorEvent(rank=self.rank, kind=kind, error=error, message=message, phase=self._phase, request=request)

    def _exit(self, status: int | None = None, signal: int | None = None) -> Events:
        return [ExitEvent(rank=self.rank, status=status, signal=signal)]

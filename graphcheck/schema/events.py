"""Owns the records that a session yields while an attempt runs, one JSON object a line."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, model_validator

from graphcheck.schema.base import Record
from graphcheck.schema.evidence import Evidence
from graphcheck.schema.provenance import Loaded

Phase = Literal["start", "load", "capture", "prefill", "decode", "teardown", "done"]
"""Where a rank is. `done` means: every request finished and the rank waits to be told to leave."""


class PhaseEvent(Record):
    """A rank entered a phase."""

    event: Literal["phase"] = "phase"
    rank: int
    phase: Phase
    seconds: float = Field(description="monotonic seconds since the rank started")


class StepEvent(Record):
    """A rank finished one engine step. Parallel lists: request i took `ids[i]` as its next token.

    `argmax` is what the engine computed (judged), `ids` what it fed on (they differ only in a forced pass);
    `index[i]` is the position of the token in its request's output, counted from 0; `finite[i]` tells whether
    the logits over the real vocabulary were all finite. `bucket` is the padded batch size, `live` the number of
    requests in the step. `logits_sha` (one a request) is given when the target was asked for `logits = "digest"`;
    `top` (request -> [[id, logit], ...], best first) only by targets that give top logits.
    """

    event: Literal["step"] = "step"
    rank: int
    step: int
    run: int = Field(default=0, description="which pass over the suite in this process")
    phase: Literal["prefill", "decode"]
    requests: tuple[str, ...]
    index: tuple[int, ...]
    argmax: tuple[int, ...]
    ids: tuple[int, ...]
    finite: tuple[bool, ...]
    live: int
    bucket: int | None = None
    replayed: bool | None = None
    fallback: str | None = None
    seconds: float | None = None
    logits_sha: tuple[str, ...] | None = None
    top: tuple[tuple[tuple[int, float], ...], ...] | None = None

    @model_validator(mode="after")
    def _parallel(self) -> "StepEvent":
        for name in ("index", "argmax", "ids", "finite", "logits_sha", "top"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.requests):
                raise ValueError(f"{name} has {len(values)} entries for {len(self.requests)} requests")
        if self.live != len(self.requests):
            raise ValueError(f"live is {self.live} for {len(self.requests)} requests")
        return self


class FinishedEvent(Record):
    """A request ended on a rank: by a stop id, or at its token limit."""

    event: Literal["finished"] = "finished"
    rank: int
    request: str
    run: int = 0
    reason: Literal["stop", "length"]
    num_tokens: int


class EvidenceEvent(Record):
    """A rank's counters, given once, when its work is done."""

    event: Literal["evidence"] = "evidence"
    rank: int
    evidence: Evidence


class LoadedEvent(Record):
    """What a rank has loaded, before its first step; again when its work is done, if that is more by then."""

    event: Literal["loaded"] = "loaded"
    rank: int
    loaded: Loaded


class ErrorEvent(Record):
    """An error on a rank. `kind` is the class of outcome; `error` the exception's class name.

    `consequence` marks an error that another rank's death explains (a reset connection); it is never a cause.
    """

    event: Literal["error"] = "error"
    rank: int
    kind: Literal["request", "oom", "crash"]
    error: str
    message: str
    phase: Phase
    request: str | None = None
    traceback: str = ""
    consequence: bool = False


class ExitEvent(Record):
    """The session saw a rank's process end: an exit status, or the signal that killed it."""

    event: Literal["exit"] = "exit"
    rank: int
    status: int | None = None
    signal: int | None = None


Event = Annotated[
    PhaseEvent | StepEvent | FinishedEvent | EvidenceEvent | LoadedEvent | ErrorEvent | ExitEvent,
    Field(discriminator="event"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)

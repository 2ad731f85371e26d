"""Owns the counters that prove what ran on a rank; a counter that a target cannot give is UNKNOWN (None)."""

from pydantic import Field

from graphcheck.schema.base import Record

UNKNOWN = None
"""The value of a counter that a target cannot witness. Never the same as 0."""


class Backend(Record):
    """What the work ran on, as shown in every summary."""

    graph: str | None = Field(default=None, description="graph backend: tape, cuda; None when no graph was captured")
    device: str = "cpu"
    device_name: str = ""
    collectives: str | None = None


class AuditFinding(Record):
    """One breach of the replay contract, seen without looking at tokens; `replay` counts from 1, 0 is capture."""

    clause: str
    buffer: str
    detail: str
    replay: int


class Evidence(Record):
    """One rank's counters over an attempt."""

    backend: Backend = Backend()
    gpu: str | None = Field(default=UNKNOWN, description="unique id of the GPU that the rank computed on")
    captures: int | None = UNKNOWN
    replays: int | None = UNKNOWN
    replayed_lane_tokens: int | None = Field(default=UNKNOWN, description="tokens that replays decoded")
    eager_lane_tokens: int | None = Field(default=UNKNOWN, description="tokens decoded without a graph; no prefill")
    padded_lanes: int | None = Field(default=UNKNOWN, description="lanes of replays that had no request, summed")
    fallbacks: dict[str, int] | None = Field(default=UNKNOWN, description="reason -> decode steps that fell back")
    largest_bucket: int | None = Field(default=UNKNOWN, description="lanes of the largest graph that was asked for")
    sites: dict[str, dict[str, int]] | None = Field(default=UNKNOWN, description="fix -> phase -> times reached")
    collectives: int | None = Field(default=UNKNOWN, description="that the host ran; of a CUDA graph, at its capture")
    peak_memory_bytes: int | None = Field(
        default=UNKNOWN, description="most held at once: by its GPU's allocator, on a CPU in resident memory"
    )
    audit: tuple[AuditFinding, ...] | None = Field(default=UNKNOWN, description="the audit's findings, if it ran")
    seconds: dict[str, float] = Field(default_factory=dict, description="phase -> wall seconds")

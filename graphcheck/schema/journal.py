"""Owns a rank's journal as the harness reads it while the rank runs or is stuck."""

from pydantic import Field

from graphcheck.schema.base import Record
from graphcheck.schema.events import Phase


class Tag(Record):
    """One collective as a rank announced it before it entered: two ranks match only if all but the site agree."""

    number: int
    kind: str
    rows: int
    nbytes: int
    site: str


class Trail(Record):
    """How far a rank's device has come in the step launched last, as the device itself wrote it.

    `step` counts launched steps from 1; `replay` counts replays from 1, and is None for an eager step. The step has
    passed `num_passed` of `num_sites` places, `last` the last of them in its order. `inside` is the first collective
    that it has entered and not left, `collective` its number within the step, from 1.
    """

    step: int
    replay: int | None = None
    num_passed: int
    num_sites: int
    last: str | None = None
    inside: str | None = None
    collective: int | None = None

    @property
    def is_over(self) -> bool:
        """True if the step has passed every site."""
        return self.num_passed == self.num_sites


class Journal(Record):
    """A snapshot. Any counter that moves is progress; `beat` is liveness alone and is not progress."""

    rank: int
    phase: Phase
    step: int = 0
    collective: int = 0
    unit: int = 0
    beat: int = 0
    finished: bool = Field(default=False, description="no unfinished work is left on this rank")
    waiting: str | None = Field(default=None, description="the declared wait that the rank is in")
    waiting_seconds: float | None = None
    tags: tuple[Tag, ...] = Field(default=(), description="the last tags, oldest first")
    trail: Trail | None = Field(default=None, description="None where the device leaves none")

    @property
    def progress(self) -> tuple[object, ...]:
        """The counters whose movement proves progress."""
        passed = (self.trail.step, self.trail.num_passed) if self.trail is not None else ()
        return (self.phase, self.step, self.collective, self.unit, *passed)

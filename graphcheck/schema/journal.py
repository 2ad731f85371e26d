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

    @property
    def progress(self) -> tuple[str, int, int, int]:
        """The counters whose movement proves progress."""
        return (self.phase, self.step, self.collective, self.unit)

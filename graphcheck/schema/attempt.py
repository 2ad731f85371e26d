"""Owns the identity of what runs: a cell of the matrix and one attempt at it."""

from typing import Literal

from pydantic import Field

from graphcheck.schema.base import AxisValue, Record

FORCED_SUFFIX = ".forced"
"""Ends the key of a forced pass."""


class Cell(Record):
    """One point of a matrix: a value for each of its axes, in the matrix's order (`tp2-graph_on`)."""

    axes: dict[str, AxisValue]

    @property
    def name(self) -> str:
        """A name that is safe as a file name: numbers follow their axis, words are joined by `_`."""
        return "-".join(
            f"{axis}{value}" if isinstance(value, int) else f"{axis}_{value}" for axis, value in self.axes.items()
        )


class Delay(Record):
    """A sleep injected on one rank at one site."""

    rank: int = Field(ge=0)
    site: str
    ms: float = Field(gt=0, allow_inf_nan=False)

    @property
    def name(self) -> str:
        return f"rank{self.rank}@{self.site}={self.ms:g}ms"


class Attempt(Record):
    """The unit that runs: a cell, what was switched off or delayed, which repeat, and how tokens are fed.

    `free` feeds each token that the engine picked; `forced` feeds the golden's, through the same graphs.
    """

    cell: Cell
    fixes_off: tuple[str, ...] = ()
    delays: tuple[Delay, ...] = ()
    repeat: int = Field(default=0, ge=0)
    feed: Literal["free", "forced"] = "free"

    @property
    def key(self) -> str:
        """Unique within a run and safe as a file name (`tp2-graph_on.no-allreduce-sync.r1.forced`)."""
        parts = [self.cell.name]
        parts += [f"no-{fix}" for fix in sorted(self.fixes_off)]
        parts += [f"delay-{delay.name}" for delay in self.delays]
        if self.repeat:
            parts.append(f"r{self.repeat}")
        return ".".join(parts) + (FORCED_SUFFIX if self.feed == "forced" else "")

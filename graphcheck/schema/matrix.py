"""Owns a matrix as its file describes it: what runs (target, model, suites), over which axes, under which policy."""

from pydantic import Field

from graphcheck.schema.base import AxisValue, Record


class Policy(Record):
    """How verdicts of this matrix are drawn."""

    expect_fallback: tuple[str, ...] = ()


class Matrix(Record):
    """A validated matrix file. `settings` fixes a target's axes for every cell; `axes` varies them.

    More than one model or suite makes `model` or `suite` an axis of its own. Each of `extra_cells` adds a cell to the
    product of the axes: a value for every axis, and for others that shall differ in this cell alone.
    """

    format: int = Field(default=1, ge=1, le=1)
    title: str = ""
    target: str = "bundled"
    models: tuple[str, ...] = Field(min_length=1)
    suites: tuple[str, ...] = Field(min_length=1)
    axes: dict[str, tuple[AxisValue, ...]] = Field(min_length=1)
    extra_cells: tuple[dict[str, AxisValue], ...] = ()
    settings: dict[str, AxisValue] = Field(default_factory=dict)
    policy: Policy = Policy()

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The axes of every cell: those of `axes`, then those that only extra cells name."""
        return tuple(dict.fromkeys((*self.axes, *(name for cell in self.extra_cells for name in cell))))

"""Owns what a target says about itself: its axes, its fixes, what it can witness, what a cell needs."""

from typing import Literal

from pydantic import Field

from graphcheck.schema.base import AxisValue, Record
from graphcheck.schema.verdicts import Verdict


class AxisSpec(Record):
    """One engine setting that a matrix may vary or fix.

    `choices` closes the set of values; without it any value of `kind` (int: not below `minimum`) is taken.
    """

    name: str
    kind: Literal["int", "str"]
    default: AxisValue | None
    choices: tuple[AxisValue, ...] | None = None
    minimum: int = 0
    help: str = ""


class Signature(Record):
    """What switching a fix off is declared to do: where, in which phase, and which verdicts count as the fault."""

    where: dict[str, tuple[AxisValue, ...]] = Field(default_factory=dict, description="axis -> values where it acts")
    phase: Literal["prefill", "decode", "any"] = "any"
    shows: dict[str, tuple[Verdict, ...]] = Field(description="graph backend -> verdicts")

    def acts_in(self, axes: dict[str, AxisValue]) -> bool:
        """True if the fix can act in a cell with these axis values (settings included)."""
        return all(axes.get(axis) in values for axis, values in self.where.items())


class FixInfo(Record):
    """One ablatable behaviour of an engine, on by default."""

    name: str
    clause: str
    promise: str
    off_means: str
    signature: Signature


class Capabilities(Record):
    """A target's answer to `describe()`.

    `devices` maps a device kind to the axis whose value is the number of devices that a cell needs
    (`{"cuda": "tp"}`); a CPU needs none. `graph_backends` are those that its evidence may name, `fallbacks` the
    reasons that it may record for a step that fell back to eager. `gives_forced`: it can be fed the golden's tokens.
    """

    target: str
    axes: tuple[AxisSpec, ...]
    fixes: tuple[FixInfo, ...] = ()
    graph_backends: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    gives_top_logits: bool = False
    gives_forced: bool = False
    devices: dict[str, str] = Field(default_factory=dict)
    sharing: dict[str, AxisValue] = Field(
        default_factory=dict, description="settings with which ranks can share devices; empty if they cannot"
    )
    sites: tuple[str, ...] = Field(default=(), description="places for delays; `{layer}` stands for a layer number")

    def axis(self, name: str) -> AxisSpec | None:
        return next((axis for axis in self.axes if axis.name == name), None)

    def fix(self, name: str) -> FixInfo | None:
        return next((fix for fix in self.fixes if fix.name == name), None)

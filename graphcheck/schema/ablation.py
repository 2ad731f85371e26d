"""Owns the words of an ablation: what is asked of it, what each trial showed, and the finding on each fix."""

from enum import StrEnum

from pydantic import Field

from graphcheck.schema.attempt import Delay
from graphcheck.schema.base import Record
from graphcheck.schema.capabilities import FixInfo
from graphcheck.schema.verdicts import Verdict


class Finding(StrEnum):
    """What is known of a fix after it was switched off. Only NECESSARY is proof."""

    NECESSARY = "NECESSARY"
    OTHER_SIGNATURE = "NECESSARY, OTHER SIGNATURE"
    REDUNDANT = "REDUNDANT"
    NEVER_REACHED = "NEVER REACHED"
    NOT_REPRODUCED = "NOT REPRODUCED"
    CANNOT_ACT = "CANNOT ACT HERE"

    @property
    def is_proof(self) -> bool:
        return self is Finding.NECESSARY


class Ablation(Record):
    """What an ablation was asked to do; part of `run.json`, so that its findings can be drawn again.

    `cells` maps each fix to the cells where it can act among the selected ones. `expect` narrows every signature to
    these verdicts. Trials run bare first; with `delays` each is repeated with them injected.
    """

    fixes: tuple[FixInfo, ...]
    cells: dict[str, tuple[str, ...]]
    num_selected_cells: int
    repeats: int = Field(default=1, ge=1)
    expect: tuple[Verdict, ...] = ()
    delays: tuple[Delay, ...] = ()


class CellEffect(Record):
    """What switching one fix off did in one cell: a verdict a trial, bare and with the delays injected.

    `reached` counts how often the fix's site was visited, per phase, over all ranks that gave evidence; None if none
    did (a rank that hung gives none). `where` says where the effect showed first, in words.
    """

    cell: str
    bare: tuple[Verdict, ...] = ()
    delayed: tuple[Verdict, ...] = ()
    reached: dict[str, int] | None = None
    where: str = ""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return (*self.bare, *self.delayed)


class FixFinding(Record):
    """The finding on one fix, with all that it rests on. `reason` is one sentence."""

    fix: str
    finding: Finding
    expected: tuple[Verdict, ...]
    effects: tuple[CellEffect, ...]
    reason: str

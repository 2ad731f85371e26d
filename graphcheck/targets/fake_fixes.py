"""Owns the fixes of the fake target: what each declares, and what really happens when it is off."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from graphcheck.schema.attempt import Attempt
from graphcheck.schema.capabilities import FixInfo, Signature
from graphcheck.schema.verdicts import Verdict


@dataclass(frozen=True)
class FakeFix:
    """A fix by script.

    `fault` names what goes wrong in an attempt with the fix off, in the cells where it acts; it may look at the repeat
    and the delays, as a race would. `visits` is what every rank claims to have counted at the fix's site, per phase.
    """

    info: FixInfo
    fault: Callable[[Attempt], str]
    visits: Mapping[str, int] = field(default_factory=lambda: {"eager": 0, "replay": 11})


REFRESH = FakeFix(
    FixInfo(
        name="refresh",
        clause="contents",
        promise="answers of replayed steps are counted out by the rule",
        off_means="every replayed token is off by one",
        signature=Signature(where={"graph": ("on",)}, phase="decode", shows={"fake": (Verdict.TOKENS,)}),
    ),
    fault=lambda attempt: "replays_off_by_one",
)
SYNC = FakeFix(
    FixInfo(
        name="sync",
        clause="visibility",
        promise="ranks go through their steps together",
        off_means="every rank waits for the others for ever, from the third decode step on",
        signature=Signature(where={"tp": (2, 4)}, phase="decode", shows={"fake": (Verdict.HANG,)}),
    ),
    fault=lambda attempt: "hang",
)
FIXES = (REFRESH, SYNC)
"""Those that the target has unless it is given others. Each does what it declares."""

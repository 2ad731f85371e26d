"""Owns the register of fixes: pure data, one record a fix. What each does is at its one site in the engine."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Fix:
    """One ablatable behaviour, on by default; a clause of the replay contract.

    `where` maps an axis to the values in which switching the fix off can act; `phase` is where it shows;
    `shows` maps a graph backend to the verdicts that count as the fault.
    """

    name: str
    clause: str
    promise: str
    off_means: str
    shows: dict[str, tuple[str, ...]]
    where: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    phase: Literal["prefill", "decode", "any"] = "decode"


FIXES: tuple[Fix, ...] = (
    Fix(
        name="device-metadata",
        clause="residency",
        promise="KV offsets and attention lengths inside a captured step come from device tensors",
        off_means="they are taken from the host mirror: legal in capture, silent, frozen at the captured values",
        shows={"tape": ("TOKENS",), "cuda": ("TOKENS",)},
        where={"graph": ("on",)},
    ),
    Fix(
        name="metadata-refresh",
        clause="contents",
        promise="every per-step input is copied into its captured buffer before each replay",
        off_means="positions, seq_lens, slot_mapping and block_tables keep their captured values",
        shows={"tape": ("TOKENS",), "cuda": ("TOKENS",)},
        where={"graph": ("on",)},
    ),
    Fix(
        name="stable-buffers",
        clause="identity",
        promise="a captured buffer is never rebound or reallocated; trying raises, naming buffer and owner",
        off_means="refresh rebinds every input to a new tensor, and nothing raises",
        shows={"tape": ("TOKENS",), "cuda": ("TOKENS",)},
        where={"graph": ("on",)},
    ),
    Fix(
        name="pad-clear",
        clause="tail",
        promise="spare lanes hold their fill value, point at the dummy page and touch nothing live",
        off_means="spare lanes keep the last step's values",
        shows={"tape": ("TOKENS",), "cuda": ("TOKENS",)},
        where={"graph": ("on",)},
    ),
    Fix(
        name="allreduce-sync",
        clause="visibility",
        promise="the result of an asynchronous collective is consumed only when it is complete",
        off_means="every reduce, logits included, is joined only at the end of the step",
        shows={"tape": ("HANG",), "cuda": ("HANG", "TOKENS")},
        where={"tp": (2, 4)},
        phase="any",
    ),
)

FIX_NAMES: tuple[str, ...] = tuple(fix.name for fix in FIXES)

"""Owns the note on fixes that were switched off where they can do nothing, so that green says nothing about them."""

from collections.abc import Iterator, Sequence

from graphcheck.schema.capabilities import Signature
from graphcheck.schema.run import RecordedAttempt, RunInfo
from graphcheck.targets.registry import TARGETS, load_target


def idle_fix_notes(info: RunInfo, attempts: Sequence[RecordedAttempt]) -> Iterator[str]:
    """A line for each fix of a run that can act in none of its cells, by what its target declares today.

    Cells that never started have no settings on record, so that an unfinished run tells nothing.
    """
    if not info.fixes_off or info.matrix.target not in TARGETS or len(attempts) < len(info.planned):
        return
    capabilities = load_target(info.matrix.target).describe()
    for name in info.fixes_off:
        fix = capabilities.fix(name)
        if fix is not None and not any(fix.signature.acts_in(attempt.started.settings) for attempt in attempts):
            yield f"fix {name} cannot act in any cell of this run (it acts where {_where(fix.signature)})"


def _where(signature: Signature) -> str:
    return " and ".join(f"{axis} is {' or '.join(map(str, values))}" for axis, values in signature.where.items())

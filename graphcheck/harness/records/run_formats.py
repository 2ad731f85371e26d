"""Owns bringing records of run folders of earlier formats up to today's, one format at a time, as plain dicts.

Whoever changes what a record holds raises RUN_FORMAT, adds a function here, and records a folder of the new format for
the tests (`python -m tests.record_run`).
"""

from collections.abc import Callable
from typing import Any, Literal

from graphcheck.schema.run import RUN_FORMAT

Fields = dict[str, Any]
Kind = Literal["run", "cell", "step"]
"""`run.json`, a line of `cells.jsonl`, a line of `steps/KEY.jsonl`."""


def _without_provenance(run: Fields) -> Fields:
    """Format 1 did not say where the code came from."""
    return run | {"provenance": {"source": {"folder": "", "note": "not recorded"}}}


def _without_gpus(cell: Fields) -> Fields:
    """Format 2 said of a rank how many ranks its GPU had at most, and not which GPU that was.

    And of an attempt that never ran it said the reason twice.
    """
    if cell["record"] == "finished":
        backends = [rank["backend"] for rank in cell["facts"]["evidence"].values()]
        for backend in (*backends, *([cell["backend"]] if cell["backend"] is not None else [])):
            del backend["ranks_per_device"]
        del cell["facts"]["skipped"]
    return cell


UPGRADES: dict[int, dict[Kind, Callable[[Fields], Fields]]] = {
    1: {"run": _without_provenance},
    2: {"cell": _without_gpus},
}
"""Format -> kind -> what makes a record of that format one of the next; a kind that is not named stays as it is."""

READABLE = range(min(UPGRADES), RUN_FORMAT + 1)


class NotOfItsFormat(ValueError):
    """A record lacks what every one of its format has."""


def upgraded(fields: Fields, kind: Kind, written_in: int) -> Fields:
    """The record as today's format has it; `run.json` keeps the number of the format that its folder is written in.

    Raises:
        NotOfItsFormat: see there.
    """
    for number in range(written_in, RUN_FORMAT):
        upgrade = UPGRADES[number].get(kind)
        try:
            fields = upgrade(fields) if upgrade is not None else fields
        except (LookupError, TypeError, AttributeError) as failure:
            raise NotOfItsFormat(f"not of format {number}: {type(failure).__name__} {failure}") from None
    return fields

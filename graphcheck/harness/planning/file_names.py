"""Owns whether the files of planned attempts, which bear their keys, can have such long names."""

from collections.abc import Iterable

from graphcheck.schema.attempt import Attempt
from graphcheck.schema.errors import UsageError

LONGEST_NAME = 255
"""Bytes that Linux and its file systems allow a name (NAME_MAX, pathconf(3))."""


def check_file_names(attempts: Iterable[Attempt]) -> None:
    """Does nothing if every attempt can be recorded, its forced pass included, which has the longest names.

    Raises:
        UsageError: one cannot, which would end the run in its middle.
    """
    for attempt in attempts:
        name = f"{attempt.model_copy(update={'feed': 'forced'}).key}.jsonl"
        if (length := len(name.encode())) > LONGEST_NAME:
            what, todo = f"cell {attempt.cell.name}", "give its axes shorter values, or switch fewer fixes off"
            if attempt.delays:
                what, todo = f"--delay, given {len(attempt.delays)} times", "give fewer"
            raise UsageError(what, f"names of files would have {length} bytes, {LONGEST_NAME} at most", todo)

"""Owns the base of every record that crosses a boundary: immutable, and strict about unknown keys."""

import re

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails


class Record(BaseModel):
    """An immutable record; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_RULES = {"missing": "this key is required", "extra_forbidden": "unknown key"}

AxisValue = int | str
"""One value of one axis. On/off axes use the strings "on" and "off"."""


def broken_rule(failure: ValidationError) -> str:
    """`ids.0: unknown key`: the first field that keeps something from being a record, and why."""
    error = failure.errors(include_url=False)[0]
    return f"{'.'.join(map(str, error['loc']))}: {rule_of(error)}" if error["loc"] else rule_of(error)


def rule_of(error: ErrorDetails) -> str:
    """The rule that one field breaks, in words that suit a file as well as an option."""
    return _RULES.get(error["type"]) or re.sub(r"^Input", "the value", error["msg"].removeprefix("Value error, "))

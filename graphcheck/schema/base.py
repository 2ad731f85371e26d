"""Owns the base of every record that crosses a boundary: immutable, and strict about unknown keys."""

from pydantic import BaseModel, ConfigDict, ValidationError


class Record(BaseModel):
    """An immutable record; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


AxisValue = int | str
"""One value of one axis. On/off axes use the strings "on" and "off"."""


def broken_rule(failure: ValidationError) -> str:
    """`ids.0: Input should be a valid integer`: the first field that keeps something from being a record, and why."""
    error = failure.errors(include_url=False)[0]
    return f"{'.'.join(map(str, error['loc']))}: {error['msg']}" if error["loc"] else error["msg"]

"""Owns the base of every record that crosses a boundary: immutable, and strict about unknown keys."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """An immutable record; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


AxisValue = int | str
"""One value of one axis. On/off axes use the strings "on" and "off"."""

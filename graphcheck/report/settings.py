"""Owns the list of settings that a matrix or `--set` may give a target: values, default and meaning."""

from collections.abc import Iterator

from graphcheck.schema.capabilities import AxisSpec
from graphcheck.targets.registry import TARGETS, load_target


def list_settings() -> Iterator[tuple[str, str]]:
    """(name, description) of every setting of every target."""
    for target in sorted(TARGETS):
        for axis in load_target(target).describe().axes:
            yield axis.name, f"{target}: {_values(axis)}, default {axis.default}; {axis.help}"


def _values(axis: AxisSpec) -> str:
    if axis.choices is not None:
        return " | ".join(map(str, axis.choices))
    return f"a number, {axis.minimum} or more" if axis.kind == "int" else "a word"

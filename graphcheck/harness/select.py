"""Owns `-k`: an expression over a cell's axes that says which cells run.

    tp=2 and graph=on        not (tp=4 or kv=static)        graph!=off        tp2
A comparison looks at one axis; a bare word at the cell's name.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from graphcheck.schema.attempt import Cell
from graphcheck.schema.errors import UsageError

Predicate = Callable[[Cell], bool]

_TOKEN = re.compile(r"\s*(?:(?P<symbol>[()])|(?P<word>[^\s()]+))")
_COMPARISON = re.compile(r"(?P<axis>\w+)(?P<operator>!?=)(?P<value>\S+)")


def parse_selection(text: str, axes: Mapping[str, Sequence[object]]) -> Predicate:
    """The predicate that `text` means; `axes` are those that cells may have, with their values.

    Raises:
        UsageError: not an expression, or an axis or a value that no cell has.
    """
    parser = _Parser(text, axes)
    predicate = parser.either()
    if parser.rest:
        raise parser.wrong(f"{parser.rest[0]!r} is one word too many")
    return predicate


class _Parser:
    """Recursive descent; `not` binds more tightly than `and`, `and` than `or`."""

    def __init__(self, text: str, axes: Mapping[str, Sequence[object]]) -> None:
        self._text, self._axes = text, axes
        self.rest = [match["symbol"] or match["word"] for match in _TOKEN.finditer(text.strip())]

    def wrong(self, rule: str) -> UsageError:
        return UsageError(f"-k {self._text!r}", rule, "write it like `tp=2 and graph=on`")

    def either(self) -> Predicate:
        left = self._both()
        while self._take("or"):
            left = _either(left, self._both())
        return left

    def _both(self) -> Predicate:
        left = self._one()
        while self._take("and"):
            left = _both(left, self._one())
        return left

    def _one(self) -> Predicate:
        if self._take("not"):
            inner = self._one()
            return lambda cell: not inner(cell)
        if self._take("("):
            inner = self.either()
            if not self._take(")"):
                raise self.wrong("a parenthesis is not closed")
            return inner
        if not self.rest or self.rest[0] in ("and", "or", ")"):
            raise self.wrong("a condition is missing")
        return self._condition(self.rest.pop(0))

    def _condition(self, word: str) -> Predicate:
        comparison = _COMPARISON.fullmatch(word)
        if comparison is None:
            return lambda cell: word in cell.name
        axis, value = comparison["axis"], comparison["value"]
        if axis not in self._axes:
            raise self.wrong(f"no cell has an axis {axis!r}, only {', '.join(self._axes)}")
        if value not in map(str, self._axes[axis]):
            raise self.wrong(f"axis {axis} has no value {value!r}, only {', '.join(map(str, self._axes[axis]))}")
        equal = comparison["operator"] == "="
        return lambda cell: (str(cell.axes.get(axis)) == value) is equal

    def _take(self, token: str) -> bool:
        if self.rest and self.rest[0] == token:
            self.rest.pop(0)
            return True
        return False


def _either(left: Predicate, right: Predicate) -> Predicate:
    return lambda cell: left(cell) or right(cell)


def _both(left: Predicate, right: Predicate) -> Predicate:
    return lambda cell: left(cell) and right(cell)

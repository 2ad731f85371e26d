"""Owns `-k`: an expression over a cell's axes that says which cells run.

    tp=2 and graph=on        not (tp=4 or kv=static)        graph!=off        tp2
A comparison looks at one axis; a bare word at the cell's name.
"""

import re
from collections.abc import Callable, Sequence

from graphcheck.schema.attempt import Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.errors import UsageError

Predicate = Callable[[Cell], bool]

_TOKEN = re.compile(r"\s*(?:(?P<symbol>[()])|(?P<word>[^\s()]+))")
_COMPARISON = re.compile(r"(?P<axis>\w+)(?P<operator>!?=)(?P<value>\S+)")


def parse_selection(text: str, cells: Sequence[Cell]) -> Predicate:
    """The predicate that `text` means for `cells`.

    Raises:
        UsageError: not an expression, an axis, a value or a word that no cell has, or one that selects no cell.
    """
    parser = _Parser(text, cells)
    try:
        predicate = parser.either()
    except RecursionError:
        raise parser.wrong("parentheses are nested too deeply") from None
    if parser.rest:
        raise parser.wrong(f"{parser.rest[0]!r} is one word too many")
    if not any(predicate(cell) for cell in cells):
        raise parser.wrong(f"selects none of {len(cells)} cells")
    return predicate


class _Parser:
    """Recursive descent; `not` binds more tightly than `and`, `and` than `or`."""

    def __init__(self, text: str, cells: Sequence[Cell]) -> None:
        self._text, self._cells = text, cells
        self._axes: dict[str, list[AxisValue]] = {}
        for cell in cells:
            for axis, value in cell.axes.items():
                values = self._axes.setdefault(axis, [])
                values += [value] if value not in values else []
        self.rest = [match["symbol"] or match["word"] for match in _TOKEN.finditer(text.strip())]

    def wrong(self, rule: str) -> UsageError:
        axes = ", ".join(f"{axis} ({', '.join(map(str, values))})" for axis, values in self._axes.items())
        return UsageError(f"-k {self._text!r}", rule, f"write it like `tp=2 and graph=on`; axes: {axes}")

    def either(self) -> Predicate:
        options = [self._both()]
        while self._take("or"):
            options.append(self._both())
        return options[0] if len(options) == 1 else lambda cell: any(option(cell) for option in options)

    def _both(self) -> Predicate:
        conditions = [self._one()]
        while self._take("and"):
            conditions.append(self._one())
        return conditions[0] if len(conditions) == 1 else lambda cell: all(holds(cell) for holds in conditions)

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
            if not any(word in cell.name for cell in self._cells):
                raise self.wrong(f"{word!r} is in no cell's name")
            return lambda cell: word in cell.name
        axis, value = comparison["axis"], comparison["value"]
        if axis not in self._axes:
            raise self.wrong(f"no cell has an axis {axis!r}")
        if value not in map(str, self._axes[axis]):
            raise self.wrong(f"axis {axis} has no value {value!r}")
        equal = comparison["operator"] == "="
        return lambda cell: (str(cell.axes.get(axis)) == value) is equal

    def _take(self, token: str) -> bool:
        if self.rest and self.rest[0] == token:
            self.rest.pop(0)
            return True
        return False

"""`-k`: which cells an expression selects, and what it refuses."""

import re

import pytest

from graphcheck.harness.planning.select import parse_selection
from graphcheck.schema.attempt import Cell
from graphcheck.schema.errors import UsageError

CELLS = [Cell(axes={"tp": tp, "graph": graph}) for tp in (1, 2, 4) for graph in ("off", "on")]


def selected(text: str) -> list[str]:
    predicate = parse_selection(text, CELLS)
    return [cell.name for cell in CELLS if predicate(cell)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tp=2", ["tp2-graph_off", "tp2-graph_on"]),
        ("tp=2 and graph=on", ["tp2-graph_on"]),
        ("tp=1 and graph=on or tp=4 and graph=off", ["tp1-graph_on", "tp4-graph_off"]),
        ("graph!=off and not tp=4", ["tp1-graph_on", "tp2-graph_on"]),
        ("not (tp=1 or tp=2) and graph=on", ["tp4-graph_on"]),
        ("tp2-graph_on", ["tp2-graph_on"]),
        ("graph_off", ["tp1-graph_off", "tp2-graph_off", "tp4-graph_off"]),
    ],
)
def test_expression_selects(text: str, names: list[str]) -> None:
    assert selected(text) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a condition is missing"),
        ("tp=2 and", "a condition is missing"),
        ("(tp=2", "not closed"),
        ("tp=2 graph=on", "one word too many"),
        ("kv=static", "no cell has an axis 'kv'"),
        ("tp=3", "axis tp has no value '3'"),
        ("tp=2 and grph_on", "'grph_on' is in no cell's name"),
        ("not tp8", "'tp8' is in no cell's name"),
        ("tp=2 and tp=4", "selects none of 6 cells"),
        ("(" * 5000 + "tp=2" + ")" * 5000, "nested too deeply"),
        ("not " * 5000 + "tp=2", "nested too deeply"),
    ],
)
def test_a_mistake_in_a_selection_lists_the_axes(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as raised:
        selected(text)
    assert str(raised.value).endswith("; axes: tp (1, 2, 4), graph (off, on)")


def test_long_expressions_are_no_deep_ones() -> None:
    assert selected(" or ".join(["tp=1"] * 5000)) == ["tp1-graph_off", "tp1-graph_on"]

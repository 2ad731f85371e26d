"""`-k`: which cells an expression selects, and what it refuses."""

import pytest

from graphcheck.harness.select import parse_selection
from graphcheck.schema.attempt import Cell
from graphcheck.schema.errors import UsageError

AXES: dict[str, list[object]] = {"tp": [1, 2, 4], "graph": ["off", "on"]}
CELLS = [Cell(axes={"tp": tp, "graph": graph}) for tp in (1, 2, 4) for graph in ("off", "on")]


def selected(text: str) -> list[str]:
    predicate = parse_selection(text, AXES)
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
        ("kv=static", "no cell has an axis 'kv', only tp, graph"),
        ("tp=3", "axis tp has no value '3', only 1, 2, 4"),
    ],
)
def test_wrong_expression_is_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        selected(text)

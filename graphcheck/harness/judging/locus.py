"""Owns where a difference comes from, as four corners of a matrix tell: graphs, tensor parallelism, or both."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphcheck.harness.judging.judge import UNJUDGED
from graphcheck.schema.base import AxisValue
from graphcheck.schema.run import RecordedAttempt

_NAMES = {
    frozenset({"1on", "Non"}): "graph",
    frozenset({"1off", "1on", "Noff", "Non"}): "everywhere",
    frozenset({"Noff", "Non"}): "tp",
    frozenset({"Non"}): "tp x graph",
    frozenset({"1on", "Noff", "Non"}): "graph + tp",
}
"""Red corners -> name. N stands for a TP size above 1."""


@dataclass(frozen=True)
class Locus:
    """The locus for one TP size, all other axes being as `rest` says; `red` are the red corners, as `tp2-graph_on`."""

    tp: int
    rest: tuple[tuple[str, AxisValue], ...]
    name: str
    red: tuple[str, ...]


def loci(attempts: Sequence[RecordedAttempt]) -> list[Locus]:
    """One for each TP size above 1 whose four corners ran, so that they say something, and are not all green."""
    groups: dict[tuple[tuple[str, AxisValue], ...], dict[tuple[int, str], bool]] = {}
    for attempt in attempts:
        axes = attempt.started.attempt.cell.axes
        tp, graph = axes.get("tp"), axes.get("graph")
        if attempt.finished is None or attempt.finished.verdict in UNJUDGED:
            continue
        if isinstance(tp, int) and isinstance(graph, str):
            rest = tuple((axis, value) for axis, value in axes.items() if axis not in ("tp", "graph"))
            groups.setdefault(rest, {})[tp, graph] = attempt.finished.verdict.is_green
    found = []
    for rest, green in groups.items():
        for tp in sorted({tp for tp, _ in green if tp > 1}):
            locus = _locus(tp, rest, green)
            if locus is not None:
                found.append(locus)
    return found


def _locus(tp: int, rest: tuple[tuple[str, AxisValue], ...], green: dict[tuple[int, str], bool]) -> Locus | None:
    corners = {"1off": (1, "off"), "1on": (1, "on"), "Noff": (tp, "off"), "Non": (tp, "on")}
    if not all(place in green for place in corners.values()):
        return None
    red = [corner for corner, place in corners.items() if not green[place]]
    if not red:
        return None
    names = tuple(f"tp{corners[corner][0]}-graph_{corners[corner][1]}" for corner in red)
    return Locus(tp, rest, _NAMES.get(frozenset(red), "mixed"), names)

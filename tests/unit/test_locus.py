"""The locus of a difference from its four corners, and when there is none to be had."""

import pytest

from graphcheck.harness.judging.locus import loci
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.run import AttemptFinished, AttemptStarted, RecordedAttempt
from graphcheck.schema.verdicts import Verdict


def cell(verdict: Verdict | None, **axes: AxisValue) -> RecordedAttempt:
    attempt = Attempt(cell=Cell(axes=axes))
    started = AttemptStarted(
        key=attempt.key, attempt=attempt, model="m", suite="s", dtype="float32", settings={}, at="now"
    )
    return RecordedAttempt(
        started, None if verdict is None else AttemptFinished(key=attempt.key, verdict=verdict, at="now")
    )


def square(red: set[str], tp: int = 2) -> list[RecordedAttempt]:
    corners = {"1off": (1, "off"), "1on": (1, "on"), "Noff": (tp, "off"), "Non": (tp, "on")}
    return [
        cell(Verdict.TOKENS if corner in red else Verdict.PASS, tp=size, graph=graph)
        for corner, (size, graph) in corners.items()
    ]


@pytest.mark.parametrize(
    ("red", "name"),
    [
        ({"1on", "Non"}, "graph"),
        ({"1off", "1on", "Noff", "Non"}, "everywhere"),
        ({"Noff", "Non"}, "tp"),
        ({"Non"}, "tp x graph"),
        ({"1on", "Noff", "Non"}, "graph + tp"),
        ({"1off"}, "mixed"),
        ({"1on"}, "mixed"),
        ({"1off", "Non"}, "mixed"),
    ],
)
def test_red_corners_name_the_locus(red: set[str], name: str) -> None:
    (locus,) = loci(square(red))
    assert (locus.tp, locus.name, len(locus.red)) == (2, name, len(red))


def test_all_green_has_no_locus() -> None:
    assert loci(square(set())) == []


@pytest.mark.parametrize("verdict", [None, Verdict.SKIPPED, Verdict.STALE, Verdict.MISSING])
def test_corner_that_did_not_run_leaves_the_locus_unknown(verdict: Verdict | None) -> None:
    assert loci([*square({"Non"})[1:], cell(verdict, tp=1, graph="off")]) == []


def test_each_tp_size_and_each_value_of_another_axis_has_its_own() -> None:
    by_tp = loci([*square({"Non"}, tp=2), *square({"Noff", "Non"}, tp=4)])
    assert [(locus.tp, locus.name) for locus in by_tp] == [(2, "tp x graph"), (4, "tp")]
    by_kv = loci(
        [
            cell(Verdict.TOKENS if (kv, graph) == ("static", "on") else Verdict.PASS, tp=tp, graph=graph, kv=kv)
            for kv in ("paged", "static")
            for tp in (1, 2)
            for graph in ("off", "on")
        ]
    )
    assert [(locus.rest, locus.name) for locus in by_kv] == [((("kv", "static"),), "graph")]

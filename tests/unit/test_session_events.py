"""What a session makes of what ranks write: events of their own or a crash of that rank, and how far devices came."""

import pytest

from graphcheck.engine import journal
from graphcheck.schema.events import ErrorEvent, StepEvent
from graphcheck.schema.journal import Trail
from graphcheck.targets.bundled.session import _parse, _trail

STEP = (
    '{"event":"step","rank":1,"step":0,"phase":"decode","requests":["p"],"index":[1],"argmax":[5],"ids":[5],'
    '"finite":[true],"live":1}'
)


def test_event_of_its_own_is_read() -> None:
    assert isinstance(_parse(1, STEP.encode()), StepEvent)


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "",
        STEP[:-9],
        STEP.replace('"rank":1', '"rank":7'),
        STEP.replace('"finite":[true]', '"finite":[]'),
        STEP.replace('"argmax":[5]', '"argmax":[5,6]'),
        STEP.replace('"live":1', '"live":2'),
        STEP.replace('"live":1', '"live":1,"logits_sha":[]'),
        STEP.replace('"live":1', '"live":1,"top":[[[5,1.0]],[[5,1.0]]]'),
    ],
)
def test_anything_else_is_a_crash_of_that_rank(line: str) -> None:
    event = _parse(1, line.encode())
    assert isinstance(event, ErrorEvent)
    assert (event.rank, event.kind, event.error) == (1, "crash", "GarbledEvent")


SITES = ("layers.0", "a.reduce", "a.reduce.done", "b.reduce", "b.reduce.done")


@pytest.mark.parametrize(
    ("num_passed", "expected"),
    [
        (0, Trail(step=9, replay=4, num_passed=0, num_sites=5)),
        (1, Trail(step=9, replay=4, num_passed=1, num_sites=5, last="layers.0")),
        (2, Trail(step=9, replay=4, num_passed=2, num_sites=5, last="a.reduce", inside="a.reduce", collective=1)),
        (3, Trail(step=9, replay=4, num_passed=3, num_sites=5, last="a.reduce.done")),
        (4, Trail(step=9, replay=4, num_passed=4, num_sites=5, last="b.reduce", inside="b.reduce", collective=2)),
        (5, Trail(step=9, replay=4, num_passed=5, num_sites=5, last="b.reduce.done")),
    ],
)
def test_trail_names_the_collective_that_was_entered_and_not_left(num_passed: int, expected: Trail) -> None:
    assert _trail(journal.Trail(9, 4, SITES, frozenset(SITES[:num_passed]))) == expected


def test_collective_that_is_joined_late_is_the_one_that_is_still_open() -> None:
    late = _trail(journal.Trail(9, 0, SITES, frozenset(SITES) - {"b.reduce.done"}))
    assert late is not None
    assert (late.replay, late.inside, late.collective, late.last) == (None, "b.reduce", 2, "b.reduce")

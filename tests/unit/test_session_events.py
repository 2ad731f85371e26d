"""What a rank writes into its pipe is an event of its own, or a crash of that rank; it never ends the run."""

import pytest

from graphcheck.schema.events import ErrorEvent, StepEvent
from graphcheck.targets.bundled.session import _parse

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
    ],
)
def test_anything_else_is_a_crash_of_that_rank(line: str) -> None:
    event = _parse(1, line.encode())
    assert isinstance(event, ErrorEvent)
    assert (event.rank, event.kind, event.error) == (1, "crash", "GarbledEvent")

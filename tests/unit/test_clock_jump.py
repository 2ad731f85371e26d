"""A wall clock that jumps by a day and back changes no verdict and no order: only stamps are read from it."""

import io
from datetime import datetime, timedelta, tzinfo
from itertools import cycle

import pytest
from rich.console import Console

from graphcheck.harness.records import run_store
from graphcheck.harness.records.run_folder import load_run
from graphcheck.report.console import render
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.verdicts import Verdict
from tests.fake_world import FakeWorld

DAY = timedelta(days=1)


def test_a_wall_clock_that_jumps_makes_no_hang_and_hides_none(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps, read = cycle([DAY, -DAY]), []

    class Jumping(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Jumping":
            read.append(tz)
            return super().now(tz) + next(jumps)

    monkeypatch.setattr(run_store, "datetime", Jumping)
    run, code = fake_world.run(fake_world.matrix(tp=[2], fault=["none", "hang"]))
    assert read, "stamps come from the clock that jumps"
    attempts = {attempt.started.attempt.cell.name: attempt.finished for attempt in run.attempts}
    assert {name: finished and finished.verdict for name, finished in attempts.items()} == {
        "tp2-fault_none": Verdict.PASS,
        "tp2-fault_hang": Verdict.HANG,
    }
    assert code is render(load_run(run.path), Console(file=io.StringIO())) is ExitCode.HANG

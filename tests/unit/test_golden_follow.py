"""What a user sees while goldens are made or calibrated, which takes minutes: where it is, and that it is alive."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from graphcheck.harness.golden.calibrate import calibrate
from graphcheck.harness.golden.regen import Making
from graphcheck.harness.planning.request import RunRequest
from graphcheck.report import heartbeat
from graphcheck.report.following import Following
from graphcheck.report.heartbeat import HEARTBEAT_SECONDS
from graphcheck.report.lines import Lines
from graphcheck.report.making import follow_making
from graphcheck.report.screen import Screen
from graphcheck.report.terminal import Terminal
from tests.fake_world import FakeWorld, VirtualClock
from tests.near_ties import make_unsure

GOLDEN = Path("probe/twelve.jsonl")


class Paper(io.StringIO):
    """A terminal in memory, or a pipe."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def terminal(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> tuple[Terminal, Paper]:
    """Standard error."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    paper = Paper(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stderr", paper)
    return Terminal(stderr=True), paper


def calibrated(world: FakeWorld, follower: Following, repeats: int = 1) -> None:
    make_unsure(world)
    matrix = world.matrix(graph=["off", "on"], settings={"fault": "drift"})
    surroundings = world.surroundings(gives_forced=True)
    calibrate(RunRequest(matrix=str(matrix)), repeats, observer=follower, surroundings=surroundings)


def test_a_log_gets_a_line_for_each_cell_that_is_calibrated_and_each_repeat(fake_world: FakeWorld) -> None:
    console = Console(file=io.StringIO())
    calibrated(fake_world, Lines(console, fake_world.clock.now), repeats=2)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert [line.split("  ")[:3] for line in lines] == [
        ["graph_off.forced", "PASS", "2/3 +1 near tie"],
        ["graph_off.r1.forced", "PASS", "2/3 +1 near tie"],
        ["graph_on.forced", "PASS", "2/3 +1 near tie"],
        ["graph_on.r1.forced", "PASS", "2/3 +1 near tie"],
    ]
    assert lines[0].endswith("s left]")
    assert lines[-1].endswith("[4/4 done]")


def test_a_forced_pass_that_runs_alone_has_its_own_time(fake_world: FakeWorld) -> None:
    follower = Following(fake_world.clock.now)
    fake_world.clock.sleep(1000.0)
    calibrated(fake_world, follower)
    assert [row.seconds is not None and row.seconds < 10 for row in follower.rows.values()] == [True, True]
    assert all(row.began is not None and row.began >= 1000.0 for row in follower.rows.values())


def test_a_log_hears_of_a_long_calibration_before_it_ends(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.0)
    console = Console(file=io.StringIO())
    calibrated(fake_world, Lines(console, fake_world.clock.now))
    assert isinstance(console.file, io.StringIO)
    assert re.search(r"^graph_on\.forced  decode, step \d+.* so far  \[1/2 done", console.file.getvalue(), re.MULTILINE)


def test_the_grid_of_a_calibration_promises_no_report(fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    console, paper = terminal(monkeypatch, is_terminal=True)
    with Screen(console, fake_world.clock.now, on_ctrl_c="stops") as screen:
        calibrated(fake_world, screen)
    drawn = paper.getvalue()
    assert "graph_on.forced" in drawn
    assert "; Ctrl-C stops, twice ends at once" in drawn


def test_in_a_log_regen_is_quiet_only_until_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    console, paper = terminal(monkeypatch, is_terminal=False)
    clock = VirtualClock()
    with follow_making(console, clock.now) as on_poll:
        for prompt in (None, "copy", "copy"):
            on_poll(Making(GOLDEN, 1, prompt))
            clock.sleep(HEARTBEAT_SECONDS - 1)
        clock.sleep(1)
        on_poll(Making(GOLDEN, 2, None))
    assert paper.getvalue().splitlines() == [
        "probe/twelve.jsonl  computation 1 of 3, prompt copy, 58 s so far",
        "probe/twelve.jsonl  computation 2 of 3, loads the model, 88 s so far",
    ]


def test_on_a_terminal_regen_has_one_line_that_is_erased_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    console, paper = terminal(monkeypatch, is_terminal=True)
    clock = VirtualClock()
    with follow_making(console, clock.now) as on_poll:
        for computation in (1, 2):
            for _ in range(9):
                on_poll(Making(GOLDEN, computation, "copy"))
            clock.sleep(1)
    drawn = paper.getvalue()
    assert drawn.count("computation 1 of 3") == 1, "as often as an eye can follow, however fast tokens come"
    assert "computation 2 of 3, prompt copy, 1 s so far" in drawn
    assert drawn.count("\n") <= 4
    assert not re.search(r"\x1b\[\?\d+[hl]", drawn), "no mode of the terminal is changed"
    assert drawn.endswith("\x1b[2K"), "erased"

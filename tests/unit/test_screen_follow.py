"""What a user sees while a run goes on: a grid that redraws in a terminal, lines and a sign of life in a log."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.running.ablate import AblateRequest, ablate
from graphcheck.harness.running.observe import Progress
from graphcheck.harness.running.run_matrix import run_matrix
from graphcheck.report import heartbeat
from graphcheck.report.following import Following
from graphcheck.report.lines import Lines
from graphcheck.report.screen import Screen
from graphcheck.report.terminal import Terminal
from tests.fake_world import FakeWorld

PRIVATE_MODE = re.compile(r"\x1b\[\?\d+[hl]")
"""A terminal stays in such a mode until somebody ends it: hidden cursor, alternate screen, mouse."""


class Steps(Following):
    """Notes what is said of each attempt at every look."""

    def __init__(self, world: FakeWorld) -> None:
        super().__init__(world.clock.now)
        self.seen: list[tuple[str, str, int]] = []
        self.left: list[float | None] = []

    def progress(self, progress: Progress) -> None:
        super().progress(progress)
        assert self.current is not None
        self.seen.append((self.current.key, self.current.phase, progress.num_tokens))
        self.left.append(self.seconds_left())


class Filming(Screen):
    """Keeps a frame of each attempt's decode, and another each second."""

    def __init__(self, console: Console, now: Callable[[], float]) -> None:
        super().__init__(console, now)
        self.frames: list[str] = []
        self._taken: set[tuple[int, int]] = set()

    def progress(self, progress: Progress) -> None:
        super().progress(progress)
        moment = (self.num_done, int(self.now()))
        if progress.phase == "decode" and progress.step and moment not in self._taken:
            self._taken.add(moment)
            paper = Console(file=io.StringIO(), width=self._console.width)
            paper.print(self.frame())
            self.frames.append(text_of(paper))


def followed(world: FakeWorld, matrix: Path, follower: Following, *, gives_forced: bool = False) -> None:
    run_matrix(RunRequest(matrix=str(matrix)), follower, world.surroundings(gives_forced=gives_forced))


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def terminal(width: int = 100, height: int = 24) -> Console:
    """One that takes colour and cursor movements, for all that rich can tell."""
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=True, force_interactive=True)


def test_each_attempt_is_followed_through_its_phases_and_tokens(fake_world: FakeWorld) -> None:
    steps = Steps(fake_world)
    followed(fake_world, fake_world.matrix(tp=[2], graph=["on"]), steps)
    phases = list(dict.fromkeys(phase for _, phase, _ in steps.seen))
    assert phases == ["start", "load", "capture", "prefill", "decode", "teardown"]
    tokens = [num for _, _, num in steps.seen]
    assert tokens == sorted(tokens)
    assert tokens[-1] == 12 + 9 + 5, "of one rank, not of both"


def test_a_forced_pass_goes_on_in_the_row_of_its_attempt(fake_world: FakeWorld) -> None:
    steps = Steps(fake_world)
    followed(fake_world, fake_world.matrix(graph=["on"], fault=["drift"]), steps, gives_forced=True)
    assert {key for key, _, _ in steps.seen} == {"graph_on-fault_drift"}
    assert "decode, forced" in {phase for _, phase, _ in steps.seen}
    assert steps.num_done == 1


def test_time_left_is_unknown_at_first_and_then_the_mean_of_what_ran(fake_world: FakeWorld) -> None:
    steps = Steps(fake_world)
    followed(fake_world, fake_world.matrix(fault=["slow", "none"], graph=["off"]), steps)
    first = [left for (key, _, _), left in zip(steps.seen, steps.left, strict=True) if "slow" in key]
    then = [left for (key, _, _), left in zip(steps.seen, steps.left, strict=True) if "none" in key]
    assert set(first) == {None}
    assert then[0] == pytest.approx(5.0, abs=0.5), "the slow one took 5 s"
    assert steps.seconds_left() is None


def test_a_log_gets_a_line_for_each_attempt_and_no_escape_code(fake_world: FakeWorld) -> None:
    console = Console(file=io.StringIO(), width=40)
    matrix = fake_world.matrix(graph=["on"], fault=["none", "drift"])
    followed(fake_world, matrix, Lines(console, fake_world.clock.now), gives_forced=True)
    assert re.fullmatch(
        r"graph_on-fault_none  PASS  3/3  \d\.\d s  \[1/2 done, about \d s left\]\n"
        r"graph_on-fault_drift  TOKENS  2/3  \d\.\d s  \[2/2 done\]\n",
        text_of(console),
    ), text_of(console)


def test_a_log_hears_of_a_long_attempt_before_it_ends(fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def heartbeats(every: float, fault: str) -> list[str]:
        monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", every)
        console = Console(file=io.StringIO())
        followed(fake_world, fake_world.matrix(tp=[2], fault=[fault]), Lines(console, fake_world.clock.now))
        return [line for line in text_of(console).splitlines() if " so far " in line]

    spoken = heartbeats(1.0, "hang")
    assert spoken[0].startswith("tp2-fault_hang  decode, step 5, "), spoken
    assert len(spoken) == 2, "the hang is called after 2.2 s"
    assert spoken[0].endswith(" tokens/s, 1 s so far  [0/1 done]")
    assert heartbeats(1.0, "none") == heartbeats(heartbeat.HEARTBEAT_SECONDS * 60, "hang") == []


def test_a_cell_that_never_ran_is_a_line_without_a_time(fake_world: FakeWorld) -> None:
    fake_world.golden_file.unlink()
    console = Console(file=io.StringIO())
    followed(fake_world, fake_world.matrix(graph=["off"]), Lines(console, fake_world.clock.now))
    assert text_of(console) == "graph_off  MISSING  [1/1 done]\n"


def test_the_grid_shows_verdict_place_speed_and_time_left(fake_world: FakeWorld) -> None:
    screen = Filming(terminal(), fake_world.clock.now)
    with screen:
        followed(fake_world, fake_world.matrix(tp=[1, 2], graph=["off"], fault=["slow"]), screen)
    frames = screen.frames
    waiting = next(frame for frame in frames if "decode" in frame and "PASS" not in frame)
    assert re.search(r"│ tp1-graph_off-fault_slow +│ decode +│ +\d+ │ +│ +0\.0 s │", waiting), waiting
    assert re.search(r"│ tp2-graph_off-fault_slow +│ waits +│ +│ +│ +│", waiting)
    assert "0/2 done; Ctrl-C stops" in waiting
    later = [frame for frame in frames if "PASS  3/3" in frame and "decode" in frame][-1]
    assert re.search(r"│ tp2-graph_off-fault_slow +│ decode +│ +\d+ │ +[1-9]\d* │ +4\.\d s │", later), later
    assert "1/2 done, about 1 s left" in later


def test_the_grid_is_erased_at_the_end_and_changes_no_mode_of_the_terminal(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TerminalInMemory(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    paper = TerminalInMemory()
    monkeypatch.setattr("sys.stdout", paper)
    console = Terminal()
    assert console.can_redraw

    def interrupted() -> None:
        with Screen(console, fake_world.clock.now) as screen:
            followed(fake_world, fake_world.matrix(graph=["off"]), screen)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    drawn = paper.getvalue()
    assert "graph_off" in drawn
    assert not PRIVATE_MODE.search(drawn)
    last_frame = drawn[drawn.rindex("┏") :]
    assert last_frame.count("\x1b[1A\x1b[2K") >= last_frame.count("\n") - 1, "the shell goes on where the grid began"


@pytest.mark.parametrize("height", [10, 24])
def test_a_grid_is_never_higher_than_its_terminal_and_keeps_the_running_cell_in_view(
    fake_world: FakeWorld, height: int
) -> None:
    screen = Filming(terminal(50, height), fake_world.clock.now)
    with screen:
        followed(fake_world, fake_world.matrix(tp=[1, 2, 4], graph=["off", "on"], lanes=[1, 2, 3, 4]), screen)
    assert len(screen.rows) == 24
    assert len(screen.frames) >= 24
    assert max(frame.count("\n") for frame in screen.frames) < height
    assert all(" decode " in frame for frame in screen.frames)


def test_two_cells_on_a_narrow_terminal_do_not_look_the_same(fake_world: FakeWorld) -> None:
    screen = Filming(terminal(60, 14), fake_world.clock.now)
    with screen:
        followed(fake_world, fake_world.matrix(tp=[1], graph=["off", "on"], strikes=["decode"]), screen)
    assert screen.frames
    for frame in screen.frames:
        assert "…" not in frame.split("└")[0]
        key = "".join(line.split("│")[1].strip() for line in frame.splitlines() if line.startswith("│"))
        assert key == "tp1-graph_off-strikes_decodetp1-graph_on-strikes_decode"


def test_an_ablation_is_followed_by_its_trials(fake_world: FakeWorld) -> None:
    console = Console(file=io.StringIO())
    matrix = fake_world.matrix(tp=[1], graph=["off", "on"])
    request = AblateRequest(RunRequest(matrix=str(matrix)), fixes=("refresh",))
    ablate(request, Lines(console, fake_world.clock.now), fake_world.surroundings())
    assert [line.split()[:2] for line in text_of(console).splitlines()] == [
        ["tp1-graph_off", "PASS"],
        ["tp1-graph_on", "PASS"],
        ["tp1-graph_on.no-refresh", "TOKENS"],
        ["tp1-graph_off.r1", "PASS"],
        ["tp1-graph_on.r1", "PASS"],
    ]
    assert text_of(console).splitlines()[-1].endswith("[5/5 done]")


@pytest.mark.parametrize(("columns", "width"), [(None, 100_000), ("", 100_000), ("60", 60)])
def test_what_is_no_terminal_has_no_width_unless_it_is_given_one(
    columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert Terminal().width == width


def test_a_pipe_is_no_terminal_even_where_ci_forces_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    console = Terminal()
    assert (console.is_terminal, console.can_redraw) == (True, False)
    assert console.width > 1000

"""Signals and the terminal: one Ctrl-C reports, a second ends at once, SIGTERM has its time, nothing stays behind."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphcheck.harness.running import interrupt
from tests.cli.program import ENVIRONMENT
from tests.fake_world import FakeWorld

STUBBORN = """\
import sys, time
from graphcheck.harness.running import interrupt
from graphcheck.targets.fake import FakeSession
def kill(session):
    print("killing", flush=True)
    time.sleep(60)
FakeSession.kill = kill
interrupt.FLUSH_SECONDS = 0.3
from graphcheck.__main__ import main
main()
"""
"""The program with a target that takes a minute to be killed; what SIGTERM leaves it is shortened."""

OWN_TERMINAL = """\
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from graphcheck.__main__ import main
main()
"""
"""The program in a terminal of its own, whose keys become its signals."""


@contextmanager
def running(world: FakeWorld, *program: str) -> Iterator[subprocess.Popen[str]]:
    """A run whose only cell never ends by itself."""
    matrix = str(world.matrix(fault=["spin"]))
    command = [sys.executable, *program, "run", "matrix", matrix, "--run-dir", "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        steps = Path("out/steps/fault_spin.jsonl")
        deadline = time.monotonic() + 60
        while not (steps.exists() and steps.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        try:
            yield process
        finally:
            process.kill()


def test_a_second_ctrl_c_ends_on_the_spot_what_a_first_could_not(fake_world: FakeWorld) -> None:
    with running(fake_world, "-c", STUBBORN) as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "killing\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert time.monotonic() - began < 2.0


def test_a_terminated_run_is_gone_when_its_time_is_up_whatever_it_does(fake_world: FakeWorld) -> None:
    assert interrupt.FLUSH_SECONDS < 5.0
    with running(fake_world, "-c", STUBBORN) as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "killing\n"
        began = time.monotonic()
        assert process.wait(10) == 143
        assert time.monotonic() - began < 2.0


@pytest.mark.parametrize(
    ("signals", "code"),
    [((signal.SIGINT,), 130), ((signal.SIGTERM, signal.SIGTERM), 143), ((signal.SIGINT, signal.SIGTERM), 130)],
)
def test_what_was_kept_and_the_report_are_printed_whatever_follows_the_first_signal(
    signals: tuple[signal.Signals, ...], code: int, fake_world: FakeWorld
) -> None:
    with running(fake_world, "-m", "graphcheck") as process:
        assert process.stdout is not None
        for number in signals:
            process.send_signal(number)
        output = process.stdout.read()
        assert process.wait(10) == code
    kept = re.findall(r"^kept: out/(\S+), ", output, re.MULTILINE)
    assert kept == sorted(kept)
    assert {"run.json", "cells.jsonl", "attempts/", "steps/", "golden/"} <= set(kept)
    assert output.index("kept: ") < output.index("fault_spin  UNFINISHED: ")
    assert f"  again: graphcheck run matrix {fake_world.path}/m.toml -k fault=spin\n" in output
    assert output.splitlines()[-1].startswith(f"exit {code}: ")
    assert json.loads(Path("out/run.json").read_text(encoding="utf-8"))["exit_code"] == code


def in_a_terminal(world: FakeWorld, *, keys: bytes = b"", **environment: str) -> tuple[str, int]:
    """What a run draws in a pseudo-terminal of 24 rows and its exit code; `keys` are typed in its second frame."""
    matrix = str(world.matrix(fault=["none", "spin"] if keys else ["none", "drift"]))
    variables = {name: value for name, value in ENVIRONMENT.items() if name not in ("NO_COLOR", "COLUMNS")}
    command = [sys.executable, "-c", OWN_TERMINAL, "run", "matrix", matrix, "--run-dir", "out"]
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=variables | {"TERM": "xterm-256color"} | environment,
        start_new_session=True,
    )
    os.close(terminal)
    drawn = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([screen], [], [], 0.1)[0]:
            try:
                drawn += os.read(screen, 65536)
            except OSError:  # the program has left its terminal
                break
        if keys and b"1/2 done" in drawn:
            os.write(screen, keys)
            keys = b""
    os.close(screen)
    return drawn.decode(), process.wait(10)


def test_a_terminal_is_left_as_it_was_found(fake_world: FakeWorld) -> None:
    drawn, code = in_a_terminal(fake_world)
    assert code == 1
    assert drawn.count("┏") > 2, "frames, then the report"
    assert not re.search(r"\x1b\[\?\d+[hl]", drawn), "no mode that somebody would have to end"
    assert "\x1b[32mPASS" in drawn
    report = drawn[drawn.rindex("\x1b[2K") + len("\x1b[2K") :]
    assert report.lstrip("\x1b[1m").startswith("graphcheck "), "the report begins where the grid was"
    assert "exit 1: " in report


def test_ctrl_c_in_a_terminal_erases_the_grid_and_reports(fake_world: FakeWorld) -> None:
    drawn, code = in_a_terminal(fake_world, keys=b"\x03")
    assert code == 130
    assert not re.search(r"\x1b\[\?\d+[hl]", drawn)
    report = drawn[drawn.rindex("\x1b[2K") + len("\x1b[2K") :]
    assert report.startswith("kept: out/attempts/")
    assert "exit 130: interrupted" in report


def test_no_color_leaves_a_grid_without_colours(fake_world: FakeWorld) -> None:
    drawn, code = in_a_terminal(fake_world, NO_COLOR="1")
    assert code == 1
    assert "\x1b[2K" in drawn
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", drawn)


def test_a_dumb_terminal_gets_lines(fake_world: FakeWorld) -> None:
    drawn, code = in_a_terminal(fake_world, TERM="dumb")
    assert code == 1
    assert drawn.startswith("fault_none  PASS  3/3  ")
    assert "\x1b" not in drawn

"""The wall clock of every process of a run jumps by a day and back at each look: nothing waits by it."""

import os
from pathlib import Path

import pytest

from graphcheck.schema.verdicts import Verdict
from tests.cli import program

JUMPING = """
import itertools, time
jumps, true = itertools.cycle([86400, -86400]), time.time
time.time = lambda: true() + next(jumps)
"""


def test_a_jump_of_the_wall_clock_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(JUMPING)
    path = os.pathsep.join([str(tmp_path / "site"), program.ENVIRONMENT["PYTHONPATH"]])
    monkeypatch.setitem(program.ENVIRONMENT, "PYTHONPATH", path)
    done = program.finish(program.start(tmp_path, "run", "matrix", "-k", "tp=2 and graph=on"), tmp_path)
    (attempt,) = done.attempts().values()
    assert attempt.verdict is Verdict.PASS, done.output
    assert 0 < attempt.facts.seconds["wall"] < 100

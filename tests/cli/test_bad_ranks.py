"""A rank that is stopped from outside, as by a debugger or a batch system: a hang that says so."""

import os
import signal
from pathlib import Path

from graphcheck.schema.verdicts import Verdict
from tests.cli.program import descendants, finish, is_alive, start, wait_until


def test_stopped_rank_is_a_hang_that_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "matrix", "-k", "tp=2 and graph=off")

    def decoding() -> bool:
        steps = list(tmp_path.glob("runs/*/steps/tp2-graph_off.jsonl"))
        return bool(steps) and '"decode"' in steps[0].read_text()

    wait_until(decoding, 120, "tp2-graph_off decodes")
    family = descendants(process.pid)
    ranks = family - {member for member in family if descendants(member)}
    os.kill(max(ranks), signal.SIGSTOP)
    done = finish(process, tmp_path)
    assert done.code == 3, done.output
    assert done.attempts()["tp2-graph_off"].verdict is Verdict.HANG
    assert done.output.count("  no stack: stopped by a signal\n") == 1, done.output
    assert done.output.count("    stack ") == 1, done.output
    assert not any(map(is_alive, family))

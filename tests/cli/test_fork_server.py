"""A fork server that dies or stops costs the attempt at hand, never the run."""

import os
import signal
from pathlib import Path

import pytest

from graphcheck.schema.verdicts import Verdict
from tests.cli.program import descendants, finish, start, wait_until


def strike(folder: Path, number: int) -> tuple[dict[str, Verdict], str]:
    """Signals the fork server while the first of two cells decodes; returns the verdicts and the output."""
    process = start(folder, "run", "matrix", "-k", "tp=2")

    def decoding() -> bool:
        steps = list(folder.glob("runs/*/steps/tp2-graph_off.jsonl"))
        return bool(steps) and '"decode"' in steps[0].read_text()

    wait_until(decoding, 120, "tp2-graph_off decodes")
    family = descendants(process.pid)
    (server,) = family - {rank for member in family for rank in descendants(member)}
    os.kill(server, number)
    done = finish(process, folder)
    assert not descendants(process.pid)
    return {cell: attempt.verdict for cell, attempt in done.attempts().items()}, done.output


def test_killed_fork_server_is_named_and_the_next_cell_gets_a_new_one(tmp_path: Path) -> None:
    verdicts, output = strike(tmp_path, signal.SIGKILL)
    assert "ForkServerDied" in output
    assert verdicts == {"tp2-graph_off": Verdict.CRASH, "tp2-graph_on": Verdict.PASS}


@pytest.mark.slow
def test_stopped_fork_server_does_not_hold_the_run_up_for_ever(tmp_path: Path) -> None:
    verdicts, _ = strike(tmp_path, signal.SIGSTOP)
    assert verdicts == {"tp2-graph_off": Verdict.HANG, "tp2-graph_on": Verdict.PASS}

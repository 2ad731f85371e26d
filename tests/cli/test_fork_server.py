"""A fork server that dies or stops costs the attempt at hand, never the run."""

import os
import signal
from pathlib import Path

from graphcheck.harness.running.limits import Limits
from graphcheck.schema.verdicts import Verdict
from tests.cli.program import Done, descendants, finish, is_alive, start, wait_until


def server_of(family: set[int]) -> int:
    """The one that is no other's child."""
    (server,) = family - {rank for member in family for rank in descendants(member)}
    return server


def verdicts(done: Done) -> dict[str, Verdict]:
    return {cell: attempt.verdict for cell, attempt in done.attempts().items()}


def strike(folder: Path, number: int) -> Done:
    """Signals the fork server while the first of two cells decodes."""
    process = start(folder, "run", "matrix", "-k", "tp=2")

    def decoding() -> bool:
        steps = list(folder.glob("runs/*/steps/tp2-graph_off.jsonl"))
        return bool(steps) and '"decode"' in steps[0].read_text()

    wait_until(decoding, 120, "tp2-graph_off decodes")
    os.kill(server_of(descendants(process.pid)), number)
    done = finish(process, folder)
    assert not descendants(process.pid)
    return done


def test_killed_fork_server_is_named_and_the_next_cell_gets_a_new_one(tmp_path: Path) -> None:
    done = strike(tmp_path, signal.SIGKILL)
    assert "ForkServerDied" in done.output
    assert verdicts(done) == {"tp2-graph_off": Verdict.CRASH, "tp2-graph_on": Verdict.PASS}


def test_stopped_fork_server_reads_no_hang_in_teardown_and_costs_no_time_limit(tmp_path: Path) -> None:
    done = strike(tmp_path, signal.SIGSTOP)
    assert "ForkServerDied" in done.output
    assert verdicts(done) == {"tp2-graph_off": Verdict.CRASH, "tp2-graph_on": Verdict.PASS}
    assert done.attempts()["tp2-graph_off"].facts.seconds["wall"] < Limits().teardown


def test_stopped_rank_and_stopped_fork_server_do_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "matrix", "-k", "tp=2 and graph=off")
    wait_until(lambda: len(descendants(process.pid)) == 3, 120, "the fork server and two ranks run")
    family = descendants(process.pid)
    server = server_of(family)
    rank = min(family - {server})
    for stopped in (rank, server):
        os.kill(stopped, signal.SIGSTOP)
    process.kill()
    process.communicate()
    try:
        wait_until(lambda: not any(map(is_alive, family)), 5, "nothing is left")
    finally:
        for left in filter(is_alive, family):
            os.kill(left, signal.SIGKILL)

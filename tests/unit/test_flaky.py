"""Cells that run several times: noise within a cell comes before any other reading of its tokens."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from graphcheck.cli.app import app
from graphcheck.harness.judging.repeats import settle
from graphcheck.harness.judging.summary import summarize
from graphcheck.harness.records.rejudge import contradictions, rejudged
from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.report.console import render
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import AttemptFinished
from graphcheck.schema.verdicts import Verdict
from tests.fake_world import FakeWorld


def repeated(world: FakeWorld, fault: str, repeats: int = 5) -> tuple[Run, ExitCode]:
    return world.run(world.matrix(graph=["on"], settings={"fault": fault}), repeats=repeats)


def only(run: Run) -> AttemptFinished:
    """The one cell's verdict."""
    (attempt,) = run.attempts
    assert attempt.finished is not None
    return attempt.finished


def test_a_cell_that_disagrees_with_itself_is_flaky_with_its_rate(fake_world: FakeWorld) -> None:
    run, code = repeated(fake_world, "flaky")
    finished = only(run)
    assert (finished.verdict, code, finished.key) == (Verdict.FLAKY, ExitCode.TOKENS, "graph_on.r1")
    assert finished.reason == (
        "tokens differ from run to run: 2/5 (95 % interval 5-85 %) red; 1 of 3 prompts differ; first 'one' at token 1"
    )
    assert [attempt.started.key for attempt in run.every] == ["graph_on", *(f"graph_on.r{n}" for n in range(1, 5))]


def test_a_cell_that_is_wrong_alike_each_time_stays_tokens(fake_world: FakeWorld) -> None:
    run, code = repeated(fake_world, "drift")
    assert (only(run).verdict, only(run).reason, code) == (
        Verdict.TOKENS,
        "1 of 3 prompts differ; first 'one' at token 1",
        ExitCode.TOKENS,
    )


def test_a_cell_that_is_right_each_time_is_one_green_cell(fake_world: FakeWorld) -> None:
    run, code = repeated(fake_world, "none")
    summary = summarize(run.info, run.attempts)
    assert (only(run).verdict, code) == (Verdict.PASS, ExitCode.PASS)
    assert (summary.num_cells, summary.num_green, summary.num_exact, summary.num_prompts) == (1, 1, 3, 3)
    assert run.info.overrides == {"repeats": 5}


def test_every_verdict_is_drawn_again_from_the_folder(fake_world: FakeWorld) -> None:
    run, _ = repeated(fake_world, "flaky")
    again = [rejudged(run, attempt) for attempt in run.every]
    assert again == [attempt.finished for attempt in run.every]
    assert settle(again) == only(run)
    assert list(contradictions(run)) == []


def finished(verdict: Verdict, answers: str = "a") -> AttemptFinished:
    return AttemptFinished(key="k", verdict=verdict, reason=f"why {verdict}", answers_sha=answers, at="")


@pytest.mark.parametrize(
    ("runs", "verdict", "reason"),
    [
        ([finished(Verdict.PASS)] * 2, Verdict.PASS, "why PASS"),
        (
            [finished(Verdict.PASS), finished(Verdict.HANG, "b"), finished(Verdict.PASS)],
            Verdict.HANG,
            "in 1/3 (95 % interval 1-91 %) of its runs: why HANG",
        ),
        ([finished(Verdict.HANG, "b"), finished(Verdict.HANG, "c")], Verdict.HANG, "why HANG"),
        ([finished(Verdict.SKIPPED)] * 2, Verdict.SKIPPED, "why SKIPPED"),
        ([finished(Verdict.PASS), finished(Verdict.SKIPPED)], Verdict.SKIPPED, "why SKIPPED"),
        (
            [finished(Verdict.LEAK), *[finished(Verdict.SKIPPED)] * 2],
            Verdict.LEAK,
            "why LEAK; 2 of its 3 runs were skipped",
        ),
        (
            [finished(Verdict.PASS), finished(Verdict.HANG, "b"), finished(Verdict.SKIPPED)],
            Verdict.HANG,
            "in 1/2 (95 % interval 1-99 %) of its runs: why HANG; 1 of its 3 runs were skipped",
        ),
        (
            [finished(Verdict.PASS, "b"), finished(Verdict.PASS, "c"), finished(Verdict.SKIPPED)],
            Verdict.FLAKY,
            "tokens differ from run to run: 1/2 (95 % interval 1-99 %) apart from the commonest; why PASS; "
            "1 of its 3 runs were skipped",
        ),
        (
            [finished(Verdict.TOKENS, "b"), finished(Verdict.TOKENS, "c"), finished(Verdict.TOKENS, "b")],
            Verdict.FLAKY,
            "tokens differ from run to run: 1/3 (95 % interval 1-91 %) apart from the commonest; why TOKENS",
        ),
        (
            [finished(Verdict.PASS, "b"), finished(Verdict.PASS, "c"), finished(Verdict.PASS, "b")],
            Verdict.FLAKY,
            "tokens differ from run to run: 1/3 (95 % interval 1-91 %) apart from the commonest; why PASS",
        ),
        ([finished(Verdict.PASS), finished(Verdict.VACUOUS)], Verdict.VACUOUS, "why VACUOUS"),
    ],
)
def test_what_repeats_add_up_to(runs: list[AttemptFinished], verdict: Verdict, reason: str) -> None:
    settled = settle(runs)
    assert (settled.verdict, settled.reason) == (verdict, reason)


def test_a_run_that_ended_between_repeats_has_no_verdict_for_the_cell(fake_world: FakeWorld) -> None:
    run, _ = repeated(fake_world, "flaky")
    cells = run.path / "cells.jsonl"
    cells.write_bytes(b"".join(cells.read_bytes().splitlines(keepends=True)[:-1]))
    cut = load_run(run.path)
    assert cut.attempts[0].finished is None
    assert summarize(cut.info, cut.attempts).num_unfinished == 1


def test_the_report_shows_a_place_for_each_cell_not_for_each_run(fake_world: FakeWorld, tmp_path: Path) -> None:
    matrix = fake_world.matrix(tp=[1, 2], graph=["off", "on"], settings={"fault": "flaky"})
    run, _ = fake_world.run(matrix, repeats=2, run_dir=tmp_path / "run")
    out = io.StringIO()
    assert render(run, Console(file=out, width=120)) is ExitCode.TOKENS
    assert out.getvalue().count("FLAKY  2/3") == 4
    assert "0/4 cells" in out.getvalue()


@pytest.mark.parametrize(("repeats", "code", "cells"), [("1", 0, "1/1 cells"), ("2", 1, "0/1 cells")])
def test_the_command_runs_each_cell_as_often_as_asked(
    repeats: str, code: int, cells: str, fake_world: FakeWorld
) -> None:
    matrix = fake_world.matrix(graph=["on"], settings={"fault": "flaky"})
    done = CliRunner().invoke(app, ["run", "matrix", str(matrix), "--repeats", repeats])
    assert (done.exit_code, cells in done.output) == (code, True), done.output


def test_fewer_than_one_run_is_refused(fake_world: FakeWorld) -> None:
    assert CliRunner().invoke(app, ["run", "matrix", "default", "--repeats", "0"]).exit_code == 2

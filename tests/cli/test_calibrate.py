"""The matrix `near_ties` with the real engine: ties are green and counted, no fix that is off ever hides among them."""

import pytest

from graphcheck.harness.judging.findings import find
from graphcheck.schema.ablation import Finding
from graphcheck.schema.verdicts import Outcome, Verdict
from tests.cli.conftest import Program

FAST = "tp=1 and graph=on"


def test_near_ties_are_green_counted_and_told(program: Program) -> None:
    done = program("run", "matrix", "near_ties", "-k", FAST)
    (finished,) = done.attempts().values()
    ties = [tie for prompt in finished.prompts for tie in prompt.near_ties]
    assert (done.code, finished.verdict) == (0, Verdict.PASS)
    assert len(ties) >= 5
    assert max(tie.margin_ulp for tie in ties) < 1.0, "the two answers are within one ULP of bfloat16"
    assert f"{len(ties)} near ties" in done.last_lines[0]
    assert f"token {ties[0].step} ({ties[0].margin_ulp:.2g} ULP)" in done.output


def test_what_is_calibrated_here_serves_a_run_here(program: Program) -> None:
    done = program("golden", "calibrate", "near_ties", "-k", FAST)
    assert done.code == 0, done.output
    assert "golden/probe/ambiguous.bfloat16.calibration: bound " in done.output
    assert program("run", "matrix", "near_ties", "-k", FAST).code == 0


def assert_no_fix_hides_among_the_ties(program: Program, *arguments: str) -> None:
    done = program("ablate", "near_ties", *arguments)
    run = done.run
    assert run.info.ablation is not None
    acting = {fix for fix, cells in run.info.ablation.cells.items() if cells}
    findings = {finding.fix: finding.finding for finding in find(run.info, run.attempts)}
    assert {fix: findings[fix] for fix in acting} == dict.fromkeys(acting, Finding.NECESSARY), done.output
    ended = [(bool(a.started.attempt.fixes_off), a.finished) for a in run.attempts if a.finished is not None]
    assert not [finished.key for is_trial, finished in ended if is_trial and finished.verdict.is_green]
    for _, finished in (one for one in ended if not one[0]):
        assert Outcome.NEAR_TIE in {prompt.outcome for prompt in finished.prompts}


def test_a_fix_that_is_off_never_hides_among_the_ties(program: Program) -> None:
    assert_no_fix_hides_among_the_ties(program, "-k", FAST)


@pytest.mark.slow
def test_no_fix_hides_among_the_ties_in_any_cell(program: Program) -> None:
    assert_no_fix_hides_among_the_ties(program)

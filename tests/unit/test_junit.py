"""`--format junit`: what a CI server reads, and that it is never of another opinion than the exit code."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.report.document import exit_code
from graphcheck.report.junit import junit
from graphcheck.report.words import RED_BASELINE
from graphcheck.schema.exit_codes import ENDING, MEANING, ExitCode
from graphcheck.schema.run import RUN_FORMAT, RecordedAttempt
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.fake_faults import FAULTS
from tests.fake_ablation import ablate_in, scripted
from tests.fake_world import FakeWorld
from tests.in_process import make_call
from tests.record_run import FOLDERS

RECORDED = load_run(FOLDERS / f"format{RUN_FORMAT}" / "matrix")
"""Seven cells; what a test needs of another colour it gives another verdict."""

RESULTS = {
    **dict.fromkeys(("HANG", "TIMEOUT", "TOKENS", "FLAKY", "VACUOUS"), "failure"),
    **dict.fromkeys(("MISSING", "STALE", "CRASH", "OOM", "ERROR", "LEAK"), "error"),
    **dict.fromkeys(("UNWITNESSED", "PASS"), "passed"),
    "SKIPPED": "skipped",
}


@dataclass(frozen=True)
class Shown:
    """A test case as a server reads it."""

    result: str
    type: str
    message: str
    text: str
    seconds: str | None


def read(run: Run) -> dict[str, Shown]:
    """Name -> test case; whatever the run, its numbers add up and agree with its exit code."""
    root = ET.fromstring(junit(run))
    (suite,) = root
    found = {}
    for case in suite.findall("testcase"):
        assert case.get("classname") == f"graphcheck.{run.info.matrix_name}"
        (inner,) = list(case) or [ET.Element("system-out")]
        result = "passed" if inner.tag == "system-out" else inner.tag
        told = (inner.get("type", ""), inner.get("message", ""), inner.text or "")
        found[case.get("name", "")] = Shown(result, *told, case.get("time"))
    assert len(found) == len(suite.findall("testcase")), "names are unique"
    for element in (root, suite):
        assert element.get("tests") == str(len(found))
        for counted, result in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert element.get(counted) == str(sum(case.result == result for case in found.values()))
    is_red = any(case.result in ("failure", "error") for case in found.values())
    assert is_red == (exit_code(run) is not ExitCode.PASS)
    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert (properties["exit code"], properties["meaning"]) == (str(int(exit_code(run))), MEANING[exit_code(run)])
    return found


def results(run: Run) -> dict[str, str]:
    return {name: case.result for name, case in read(run).items()}


def recorded(*verdicts: Verdict | None, ended: ExitCode | None = None, **overrides: Any) -> Run:
    """The recorded run with these verdicts in its first cells, None where one was cut off; the others never began."""
    attempts = []
    for attempt, verdict in zip(RECORDED.attempts, verdicts, strict=False):
        assert attempt.finished is not None
        finished = attempt.finished.model_copy(update={"verdict": verdict, "reason": f"is {verdict}"})
        attempts.append(RecordedAttempt(attempt.started, finished if verdict else None))
    changes = {"overrides": overrides, "exit_code": ended}
    info = RECORDED.info.model_copy(update={**changes, "planned": RECORDED.info.planned})
    return replace(RECORDED, info=info, attempts=tuple(attempts), every=tuple(attempts))


@pytest.mark.parametrize(
    "folder", sorted(FOLDERS.glob("format*/*")), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_a_recorded_run_of_any_format_agrees_with_its_exit_code(folder: Path) -> None:
    run = load_run(folder)
    shown = results(run)
    if run.info.ablation is not None:
        assert shown == {"tp2-graph_on": "passed", "fix refresh": "passed", "fix sync": "passed"}
    else:
        assert [*shown] == [*run.info.planned]
        assert [[*shown.values()].count(result) for result in ("passed", "failure", "error")] == [2, 3, 2]


def test_every_fault_agrees_with_its_exit_code(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[2], graph=["on"], fault=[*FAULTS]))
    assert len(run.attempts) == len(FAULTS)
    for attempt in run.attempts:
        assert attempt.finished is not None
        info = run.info.model_copy(update={"planned": (attempt.started.key,), "exit_code": None})
        shown = read(replace(run, info=info, attempts=(attempt,), every=(attempt,)))
        case = shown[attempt.started.key]
        assert case.result == RESULTS[attempt.finished.verdict]
        if case.result != "passed":
            assert (case.type, case.message) == (attempt.finished.verdict, attempt.finished.reason)
            assert case.text.startswith(attempt.finished.reason)


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_has_its_result(verdict: Verdict) -> None:
    run = recorded(verdict, *[Verdict.PASS] * 6)
    shown = results(run)
    assert shown.pop(run.info.planned[0]) == RESULTS[verdict]
    if verdict is Verdict.SKIPPED:
        assert shown.pop("run") == "error", "exit 8, which a skipped case alone would hide"
    assert set(shown.values()) == {"passed"}


@given(
    verdicts=st.lists(st.sampled_from([*Verdict, None]), max_size=7),
    ended=st.sampled_from([None, *sorted(ENDING)]),
    overrides=st.fixed_dictionaries(
        {},
        optional={
            "allow_skipped": st.just(True),
            "fail_fast": st.just(True),
            "require_backend": st.sampled_from(["fake", "cuda"]),
        },
    ),
)
def test_whatever_came_of_its_cells_the_file_and_the_exit_code_agree(
    verdicts: list[Verdict | None], ended: ExitCode | None, overrides: dict[str, Any]
) -> None:
    read(recorded(*verdicts, ended=ended, **overrides))


def test_a_red_cell_tells_its_story_and_the_command_that_repeats_it(fake_world: FakeWorld) -> None:
    matrix = str(fake_world.matrix(tp=[2], graph=["on"], fault=["hang", "none"]))
    run, _ = fake_world.run(Path(matrix), command=("graphcheck", "run", "matrix", matrix, "--format", "junit"))
    red, green = read(run).values()
    assert (red.result, red.type) == ("failure", "HANG")
    assert red.message.startswith("ranks 0, 1 stood still")
    lines = red.text.splitlines()
    assert lines[0] == red.message
    assert (
        "collective #9 does not match: rank 0: reduce of 3 rows, 12 bytes; rank 1: reduce of 4 rows, 16 bytes" in lines
    )
    assert lines[-1] == f"again: graphcheck run matrix {matrix} -k 'tp=2 and graph=on and fault=hang'"
    assert float(red.seconds or 0) > 2.0
    assert green.text == "PASS 3/3 token-exact, 11 replays"


def test_what_is_green_but_no_plain_pass_says_so(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(graph=["on"], fault=["unwitnessed", "fallback"], expect_fallback=["kv_dtype"])
    blind, eager = read(fake_world.run(matrix)[0]).values()
    assert blind.text.startswith("UNWITNESSED 3/3 token-exact, ? replays\nrank 0 cannot tell")
    assert eager.text.startswith("PASS (eager by declaration) 3/3 token-exact, 0 replays")


def test_the_run_says_what_it_ran_on_and_what_a_reader_must_not_miss(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2], graph=["off", "on"], settings={"fault": "replays_off_by_one"}))
    root = ET.fromstring(junit(replace(run, notes=("mind this",))))
    (suite,) = root
    assert (suite.get("name"), suite.get("timestamp")) == ("m", run.info.started)
    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert properties["graphcheck"] == run.info.graphcheck
    assert properties["backend"] == "fake on CPU, no CUDA graph ran"
    assert properties["source"]
    aside = suite.findtext("system-out", "").splitlines()
    assert (aside[0], aside[-1]) == ("locus: graph; red corners: tp1-graph_on, tp2-graph_on", "mind this")


def test_a_required_backend_is_a_test_of_its_own(fake_world: FakeWorld) -> None:
    met, _ = fake_world.run(fake_world.matrix(graph=["on"]), require_backend="fake")
    assert results(met) == {"graph_on": "passed", "required backend": "passed"}
    unmet, code = fake_world.run(fake_world.matrix(graph=["off"]), require_backend="fake")
    assert (results(unmet), code) == ({"graph_off": "passed", "required backend": "failure"}, ExitCode.VACUOUS)
    assert "fake" in read(unmet)["required backend"].message


def test_skipped_cells_spoil_the_run_unless_they_are_allowed_to(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1, 2], settings={"device": "cuda"})
    spoilt, _ = fake_world.run(matrix, num_devices=1)
    assert results(spoilt) == {"tp1": "passed", "tp2": "skipped", "run": "error"}
    assert read(spoilt)["tp2"].message == "needs 2 cuda devices, found 1"
    assert read(spoilt)["run"].type == "INCOMPLETE"
    allowed, _ = fake_world.run(matrix, num_devices=1, allow_skipped=True)
    assert results(allowed) == {"tp1": "passed", "tp2": "skipped"}
    nothing, _ = fake_world.run(matrix, allow_skipped=True)
    assert results(nothing) == {"tp1": "skipped", "tp2": "skipped", "run": "failure"}


def test_cells_that_the_run_never_came_to_are_errors() -> None:
    run = recorded(Verdict.PASS, None, ended=ExitCode.INTERRUPTED)
    shown = read(run)
    assert [case.result for case in shown.values()] == ["passed", *["error"] * 7]
    assert {case.type for case in shown.values()} == {"", "UNFINISHED", "INTERRUPTED"}
    assert shown["run"].message == "interrupted"


def test_cells_that_fail_fast_left_out_are_skipped(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(fault=["drift", "none", "hang"]), fail_fast=True)
    shown = read(run)
    assert [case.result for case in shown.values()] == ["failure", "skipped", "skipped"]
    assert shown["fault_hang"].message == "--fail-fast: stopped at fault_drift, TOKENS; 2 cells not run"


def test_a_folder_that_does_not_bear_out_its_verdicts_is_an_error(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"], fault=["drift"]))
    cells = run.path / "cells.jsonl"
    cells.write_text(cells.read_text(encoding="utf-8").replace('"TOKENS"', '"PASS"'), encoding="utf-8")
    ended = make_call(monkeypatch, capsys)("report", str(run.path), "--format", "junit")
    assert ended.code == ExitCode.USAGE
    cell, whole = ET.fromstring(ended.out).iter("testcase")
    assert [inner.tag for inner in cell] == ["system-out"]
    assert [inner.tag for inner in whole] == ["error"]
    assert "recorded as PASS, but what is recorded of it says TOKENS" in whole.findtext("error", "")


def test_a_cell_keeps_its_name_whichever_of_its_repeats_speaks(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"], fault=["flaky"]), repeats=3)
    (spoken,) = run.attempts
    last = next(one for one in run.every if one.started.attempt.repeat == 2)
    assert results(replace(run, attempts=(RecordedAttempt(last.started, spoken.finished),))) == {
        "graph_on-fault_flaky": "failure"
    }


def test_a_fix_is_a_test_that_fails_without_proof(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[2], graph=["off", "on"])
    idle = scripted("none", Verdict.TOKENS, name="idle")
    ablated = ablate_in(fake_world, matrix, scripted("hang", Verdict.HANG, name="joined"), idle)
    shown = read(ablated.run)
    assert {name: case.result for name, case in shown.items()} == {
        "tp2-graph_off": "passed",
        "tp2-graph_on": "passed",
        "fix joined": "passed",
        "fix idle": "failure",
    }
    assert (shown["fix idle"].type, ablated.code) == ("REDUNDANT", ExitCode.UNPROVEN)
    assert shown["fix idle"].message == ablated.findings["idle"].reason
    assert "\ntp2-graph_on.no-joined  HANG: ranks 0, 1 stood still" in shown["fix joined"].text
    assert float(shown["fix joined"].seconds or 0) > 2.0


def test_a_red_baseline_fails_and_its_fixes_are_skipped(fake_world: FakeWorld) -> None:
    run = ablate_in(fake_world, fake_world.matrix(graph=["on"], fault=["drift"]), options={"fixes": ("refresh",)}).run
    assert results(run) == {"graph_on-fault_drift": "failure", "fix refresh": "skipped"}
    assert read(run)["fix refresh"].message == RED_BASELINE


def test_a_baseline_that_only_its_delay_turns_red_fails_too(fake_world: FakeWorld) -> None:
    options = {"delays": ("rank=0,site=layers.1,ms=5",), "fixes": ("refresh",)}
    run = ablate_in(fake_world, fake_world.matrix(graph=["on"]), options=options).run
    late = next(one for one in run.attempts if one.started.attempt.delays)
    assert late.finished is not None
    red = replace(late, finished=late.finished.model_copy(update={"verdict": Verdict.TOKENS, "reason": "late"}))
    spoilt = replace(run, attempts=tuple(red if one is late else one for one in run.attempts))
    assert results(spoilt) == {"graph_on": "passed", late.started.key: "failure", "fix refresh": "skipped"}


def test_what_no_xml_can_hold_is_escaped_and_the_rest_kept() -> None:
    run = recorded(Verdict.CRASH, *[Verdict.PASS] * 6)
    first = run.attempts[0]
    assert first.finished is not None
    hostile = '\x1b[31m]]><red/> & "q" \x00\ufffe\ud800 naïve 日本 \U0001f600\tend'
    spoilt = replace(first, finished=first.finished.model_copy(update={"reason": hostile}))
    case = next(iter(read(replace(run, attempts=(spoilt, *run.attempts[1:]))).values()))
    kept = '\\x1b[31m]]><red/> & "q" \\x00\\ufffe\\ud800 naïve 日本 \U0001f600\tend'
    assert (case.message, case.text.splitlines()[0]) == (kept, kept)


def test_standard_output_is_the_xml_alone_in_ascii_and_a_report_prints_it_again(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = make_call(monkeypatch, capsys)
    matrix = str(fake_world.matrix(graph=["on"], fault=["none", "drift"]))
    first = call("run", "matrix", matrix, "--run-dir", "out", "--format", "junit")
    assert (first.code, first.out.isascii()) == (1, True)
    assert first.out.startswith("<?xml version='1.0' encoding='us-ascii'?>\n<testsuites ")
    assert "graph_on-fault_drift  TOKENS" in first.err
    assert first.err.splitlines()[-1] == f"exit 1: {MEANING[ExitCode.TOKENS]}"
    again = call("report", "out", "--format", "junit")
    assert (again.code, again.out) == (1, first.out)
    call("run", "matrix", matrix, "--format", "junit", "--disable-fix", "typo").assert_one_line(2, "fix 'typo'")

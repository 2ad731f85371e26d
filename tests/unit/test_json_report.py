"""`--format json`: one object that says what the report says; and the command that repeats one attempt."""

import io
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel
from rich.console import Console

import graphcheck
from graphcheck.cli.app import app
from graphcheck.harness.planning.select import parse_selection
from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.report.json import AblationReport, AttemptReport, Counts, RunReport, json_report, print_json
from graphcheck.report.listing import PlannedReport
from graphcheck.report.rerun import _NEVER_MATTER, _OF_TRIALS, rerun_command, rerun_lines, selection
from graphcheck.report.show import show
from graphcheck.report.terminal import Terminal
from graphcheck.schema.ablation import CellEffect, FixFinding
from graphcheck.schema.attempt import Attempt, Cell, Delay
from graphcheck.schema.exit_codes import MEANING, ExitCode
from graphcheck.schema.verdicts import Verdict
from tests.fake_ablation import ablate_in
from tests.fake_world import FakeWorld
from tests.in_process import Call, make_call

TRIAL = Attempt(cell=Cell(axes={"tp": 2, "graph": "on"}), fixes_off=("sync",))
DELAYED = TRIAL.model_copy(update={"delays": (Delay(rank=1, site="layers.0", ms=5),)})


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    return make_call(monkeypatch, capsys)


def printed(run: Run) -> Any:
    console = Console(file=io.StringIO(), width=40)
    print_json(run, console)
    assert isinstance(console.file, io.StringIO)
    return json.loads(console.file.getvalue())


def called(run: Run, *command: str) -> Run:
    return replace(run, info=run.info.model_copy(update={"command": ("graphcheck", *command)}))


def test_every_cell_has_its_verdict_and_counts_and_the_run_its_code(fake_world: FakeWorld) -> None:
    run, code = fake_world.run(fake_world.matrix(tp=[2], graph=["on"], fault=["none", "drift", "hang"]))
    told = printed(run)
    assert (told["exit_code"], told["meaning"]) == (code, MEANING[code])
    assert told["run"] == str(run.path)
    assert [cell["verdict"] for cell in told["cells"]] == ["PASS", "TOKENS", "HANG"]
    assert [cell["axes"]["fault"] for cell in told["cells"]] == ["none", "drift", "hang"]
    assert [cell["green"] for cell in told["cells"]] == [True, False, False]
    assert [(cell["exact"], cell["prompts"]) for cell in told["cells"]] == [(3, 3), (2, 3), (0, 3)]
    assert [cell["replays"] for cell in told["cells"]] == [11, 11, None]
    assert told["cells"][2]["reason"].startswith("ranks 0, 1 stood still")
    counts = told["counts"]
    assert (counts["cells"], counts["green"], counts["exact"], counts["unfinished"]) == (3, 1, 5, 0)
    assert told["ablation"] is None


def test_a_run_that_was_cut_short_says_what_has_no_verdict_and_what_never_started(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["off", "on"], lanes=[1, 2]))
    first, second = run.attempts[:2]
    cut = (first, replace(second, finished=None))
    told = printed(replace(run, attempts=cut, every=cut))
    assert [cell["verdict"] for cell in told["cells"]] == ["PASS", None]
    assert told["not_started"] == ["graph_on-lanes1", "graph_on-lanes2"]
    assert (told["counts"]["unfinished"], told["exit_code"]) == (3, 8)


def test_a_program_reads_what_the_screen_says_of_each_cell_and_of_all(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1, 2], graph=["off", "on"], settings={"fault": "replays_off_by_one"})
    told = printed(fake_world.run(matrix, require_backend="fake")[0])
    assert told["where"][0] == "locus: graph; red corners: tp1-graph_on, tp2-graph_on"
    assert told["lacks_backend"] == "fake", "no green cell replayed"
    green, red = told["cells"][:2]
    assert (green["explanation"], red["reason"]) == ([], "3 of 3 prompts differ; first 'one' at token 1")
    assert red["explanation"][0].startswith("prompt 'one', token 1, rank 0: expected 58, got 59")
    assert red["reason"] not in red["explanation"]
    assert Path(red["folder"], "rank0.log").is_file()
    plain = printed(fake_world.run(fake_world.matrix(graph=["on"]), require_backend="fake")[0])
    assert (plain["where"], plain["lacks_backend"]) == ([], None)


def test_an_attempt_that_never_started_has_no_folder(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[2], settings={"device": "cuda"}))
    (skipped,) = printed(run)["cells"]
    assert (skipped["folder"], skipped["explanation"]) == (None, [])


def test_an_ablation_tells_its_findings_and_its_trials_beside_the_baseline(fake_world: FakeWorld) -> None:
    ablated = ablate_in(fake_world, fake_world.matrix(tp=[2], graph=["off", "on"]), options={"fixes": ("refresh",)})
    told = printed(ablated.run)
    assert told["exit_code"] == ablated.code == ExitCode.PASS
    assert [cell["key"] for cell in told["cells"]] == ["tp2-graph_off", "tp2-graph_on"]
    assert told["counts"]["cells"] == 2
    ablation = told["ablation"]
    assert (ablation["red_baseline"], ablation["proven"]) == (False, 1)
    assert [(one["fix"], one["finding"]) for one in ablation["findings"]] == [("refresh", "NECESSARY")]
    assert [trial["key"] for trial in ablation["trials"]] == [
        "tp2-graph_on.no-refresh",
        "tp2-graph_off.r1",
        "tp2-graph_on.r1",
    ]


def test_a_red_baseline_has_no_findings(fake_world: FakeWorld) -> None:
    told = printed(ablate_in(fake_world, fake_world.matrix(graph=["on"], fault=["drift"])).run)
    assert told["ablation"] == {"red_baseline": True, "proven": 0, "findings": [], "trials": []}
    assert told["exit_code"] == ExitCode.TOKENS


def test_standard_output_is_the_object_alone_and_a_report_prints_it_again(call: Call, fake_world: FakeWorld) -> None:
    matrix = str(fake_world.matrix(graph=["on"], fault=["none", "drift"]))
    first = call("run", "matrix", matrix, "--run-dir", "out", "--format", "json")
    assert first.code == 1
    assert json.loads(first.out)["exit_code"] == 1
    assert "graph_on-fault_drift  TOKENS" in first.err
    assert first.err.splitlines()[-1] == f"exit 1: {MEANING[ExitCode.TOKENS]}"
    again = call("report", "out", "--format", "json")
    assert (again.code, again.out) == (1, first.out)


def test_what_the_user_got_wrong_leaves_standard_output_empty(call: Call, fake_world: FakeWorld) -> None:
    fake_world.matrix(graph=["on"])
    call("run", "matrix", "m.toml", "--format", "json", "--lanes", "2", "--set", "lanes=3").assert_one_line(2, "--set ")


def test_every_red_attempt_carries_the_command_that_repeats_it_alone(call: Call, fake_world: FakeWorld) -> None:
    matrix = str(fake_world.matrix(tp=[1, 2], graph=["off", "on"]))
    first = call("run", "matrix", matrix, "--disable-fix", "refresh", "--run-dir", "out", "--format=json")
    cells = [AttemptReport.model_validate(cell) for cell in json.loads(first.out)["cells"]]
    assert [cell.rerun is None for cell in cells] == [True, False, True, False]
    assert cells[3].rerun == f"graphcheck run matrix {matrix} --disable-fix refresh -k 'tp=2 and graph=on'"
    again = call(*shlex.split(cells[3].rerun)[1:], "--format", "json")
    (cell,) = json.loads(again.out)["cells"]
    assert (cell["key"], cell["verdict"]) == (cells[3].key, "TOKENS")
    assert cell["rerun"] == cells[3].rerun, "the command of a repeat is the same"
    assert f"  again: {cells[3].rerun}\n" in call("report", "out").out


def test_options_that_change_the_attempt_are_kept_and_the_others_dropped(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    words = ["run", "matrix", "m.toml", "-k", "not graph=off", "--run-dir=a", "--fail-fast", "--format", "markdown"]
    kept = ["--set", "kv=static", "--audit", "--repeats", "3", "--model=x y", "--golden-dir", "g", "--lanes", "2"]
    command = rerun_command(called(run, *words, *kept).info, TRIAL)
    assert command is not None
    assert shlex.split(command) == ["graphcheck", "run", "matrix", "m.toml", *kept, "-k", "tp=2 and graph=on"]
    joined = rerun_command(called(run, "run", "matrix", "-kgraph=on").info, TRIAL)
    assert joined == "graphcheck run matrix -k 'tp=2 and graph=on'"
    assert rerun_command(run.info, TRIAL) is None, "no command started this run"


def test_a_trial_is_repeated_as_a_run_and_one_with_a_delay_as_an_ablation(fake_world: FakeWorld) -> None:
    run = ablate_in(fake_world, fake_world.matrix(tp=[2], graph=["on"])).run
    delay = ["--delay", "rank=1,site=layers.0,ms=5"]
    info = called(run, "ablate", "--fix", "sync", "--fix=refresh", "--expect", "HANG", *delay, "--lanes", "2").info
    assert rerun_command(info, TRIAL) == ("graphcheck run matrix --lanes 2 -k 'tp=2 and graph=on' --disable-fix sync")
    assert rerun_command(info, DELAYED) == (
        f"graphcheck ablate --expect HANG {shlex.join(delay)} --lanes 2 -k 'tp=2 and graph=on' --fix sync"
    )


def test_no_option_of_an_ablation_is_left_in_the_run_that_repeats_its_trial() -> None:
    """An option that `ablate` alone knows would make the command fail."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    ablate, run = commands["ablate"], commands["run"].commands["matrix"]

    def options(command: Any) -> set[str]:
        return {name for parameter in command.params for name in parameter.opts if name.startswith("-")}

    assert options(ablate) - options(run) == set(_OF_TRIALS)
    assert set(_NEVER_MATTER) <= options(ablate) & options(run)


@pytest.mark.parametrize(
    "record", [RunReport, Counts, AttemptReport, AblationReport, FixFinding, CellEffect, PlannedReport]
)
def test_the_readme_documents_every_key(record: type[BaseModel]) -> None:
    readme = Path(graphcheck.__file__).parents[1] / "README.md"
    _, _, documented = readme.read_text(encoding="utf-8").partition("**`--format json`**")
    section, _, _ = documented.partition("What cannot work")
    assert [name for name in record.model_fields if f"`{name}`" not in section] == []


@pytest.mark.parametrize("axes", [{"tp": 2, "graph": "on"}, {"model": "tiny-qwen2", "buckets": "1,2", "tp": 1}])
def test_the_selection_selects_the_cell_and_no_other(axes: dict[str, int | str]) -> None:
    cell = Cell(axes=axes)
    others = [Cell(axes=axes | {name: "other"}) for name in axes]
    selects = parse_selection(selection(cell), [cell, *others])
    assert [selects(one) for one in (cell, *others)] == [True, *[False] * len(others)]


def test_green_and_skipped_cells_have_nothing_to_repeat(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    info = called(run, "run", "matrix").info
    assert not [*rerun_lines(info, Verdict.PASS, [TRIAL]), *rerun_lines(info, Verdict.SKIPPED, [TRIAL])]
    assert len([*rerun_lines(info, None, [TRIAL]), *rerun_lines(info, Verdict.HANG, [TRIAL, DELAYED])]) == 3


def test_fail_fast_stops_after_the_first_red_cell_with_its_code_and_says_so(call: Call, fake_world: FakeWorld) -> None:
    matrix = str(fake_world.matrix(fault=["none", "drift", "hang"]))
    ended = call("run", "matrix", matrix, "--fail-fast", "--run-dir", "out")
    assert ended.code == 1, "that of the red cell, not of what was left out"
    assert "--fail-fast: stopped at fault_drift, TOKENS; 1 cell not run\n" in ended.out
    told = json_report(load_run(Path("out")))
    assert ([cell.key for cell in told.cells], told.not_started) == (["fault_none", "fault_drift"], ("fault_hang",))
    assert call("run", "matrix", matrix, "--run-dir", "all").code == 3


def test_fail_fast_lets_all_repeats_of_a_cell_run_and_passes_over_skipped_ones(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(fault=["flaky", "none"])
    run, code = fake_world.run(matrix, fail_fast=True, repeats=2)
    assert code is ExitCode.TOKENS
    assert [attempt.finished and attempt.finished.verdict for attempt in run.attempts] == [Verdict.FLAKY]
    skipped, code = fake_world.run(fake_world.matrix(tp=[2, 1], settings={"device": "cuda"}), 1, fail_fast=True)
    assert code is ExitCode.INCOMPLETE
    assert len(skipped.attempts) == 2
    assert "--fail-fast" not in "".join(skipped.notes)


def test_a_list_shows_every_attempt_and_starts_none(call: Call, fake_world: FakeWorld) -> None:
    matrix = str(fake_world.matrix(tp=[1, 2], graph=["on"]))
    told = call("run", "matrix", matrix, "--list", "-k", "tp=2", "--repeats", "2")
    assert (told.code, told.err) == (0, "")
    assert told.out.splitlines() == [
        "tp2-graph_on     toy, trio: 3 prompts",
        "tp2-graph_on.r1  toy, trio: 3 prompts",
        "2 attempts, nothing was started",
    ]
    trials = call("ablate", matrix, "--list", "--fix", "sync", "--delay", "rank=1,site=layers.0,ms=5", "-k", "tp=2")
    keys = [line.split("  ")[0] for line in trials.out.splitlines()[:-1]]
    ran = ablate_in(
        fake_world,
        Path(matrix),
        select="tp=2",
        options={"fixes": ("sync",), "delays": ("rank=1,site=layers.0,ms=5",)},
    )
    assert tuple(keys) == ran.run.info.planned
    assert not Path("out").exists()


def test_a_list_for_programs_tells_what_would_not_start(call: Call, fake_world: FakeWorld) -> None:
    matrix = str(fake_world.matrix(tp=[2], settings={"device": "cuda"}))
    (planned,) = json.loads(call("run", "matrix", matrix, "--list", "--format", "json").out)["planned"]
    assert (planned["verdict"], planned["prompts"], planned["devices"]) == (None, 3, {"cuda": 2})
    fake_world.golden_file.unlink()
    (planned,) = json.loads(call("run", "matrix", matrix, "--list", "--format", "json").out)["planned"]
    assert (planned["verdict"], planned["prompts"]) == ("MISSING", None)
    assert planned["reason"]
    call("run", "matrix", matrix, "--list", "--disable-fix", "typo").assert_one_line(2, "fix 'typo'")


def test_a_table_in_a_pipe_keeps_its_words(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    cells = fake_world.matrix(tp=[1, 2, 4], graph=["off", "on"], lanes=[1, 2])
    ablated = ablate_in(fake_world, cells, options={"fixes": ("sync",)})
    capsys.readouterr()
    show(ablated.run.path, Terminal())
    header = next(line for line in capsys.readouterr().out.splitlines() if "fix off" in line)
    assert "…" not in header
    assert all(attempt.started.attempt.cell.name in header for attempt in ablated.run.attempts)

"""The last line of a report: words for every code, and advice that fits what happened and can be typed as it stands."""

import io
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from rich.console import Console

from graphcheck.cli.app import app
from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.records.run_folder import Run
from graphcheck.report.advice import CONTRADICTED, last_line
from graphcheck.report.console import render
from graphcheck.report.rerun import (
    _FLAGS_NOT_OF_GOLDENS,
    _FLAGS_OF_CELLS,
    _NOT_OF_GOLDENS,
    _OF_CELLS,
    _OF_GOLDENS,
    OPTIONS,
)
from graphcheck.report.show import show
from graphcheck.schema.ablation import Ablation
from graphcheck.schema.exit_codes import MEANING, ExitCode
from graphcheck.schema.verdicts import Verdict
from tests.fake_ablation import ablate_in
from tests.fake_world import FakeWorld


def advice(run: Run, code: ExitCode) -> str:
    """What the last line proposes."""
    return last_line(run, code).partition("; next: ")[2]


def options_of(command: object) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts if name.startswith("-")}  # type: ignore[attr-defined]


def shown(path: Path) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    show(path, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("code", ExitCode)
def test_the_last_line_has_words_for_every_code_that_a_run_can_end_with(code: ExitCode, fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["off"]))
    line = last_line(run, code)
    assert line.startswith(f"exit {int(code)}: {MEANING[code]}; next: ")
    assert "{" not in line


def test_after_a_pass_the_runs_own_command_is_proposed_with_a_fix_off(fake_world: FakeWorld) -> None:
    kept = ("graphcheck", "run", "matrix", "m.toml", "--model", "x y", "--set", "kv=static", "-k", "tp=1")
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]), command=(*kept, "--run-dir", "out", "--format=json"))
    assert f"`{shlex.join(kept)} --disable-fix NAME`" in advice(run, ExitCode.PASS)
    library, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    assert "`graphcheck run matrix m --disable-fix NAME`" in advice(library, ExitCode.PASS)


def test_after_a_pass_with_a_fix_off_no_other_is_proposed_but_to_see_whether_it_was_reached(
    fake_world: FakeWorld,
) -> None:
    command = ("graphcheck", "run", "matrix", "m.toml", "--disable-fix", "sync", "--ignore-eos", "-k", "tp=2")
    matrix = fake_world.matrix(tp=[1, 2], graph=["off"])
    run, _ = fake_world.run(matrix, command=command, fixes_off=("sync",))
    assert advice(run, ExitCode.PASS) == (
        "nothing here needs sync; whether its site was reached is told by `graphcheck ablate m.toml -k tp=2 --fix sync`"
    )


def test_an_option_that_only_a_matrix_run_knows_is_not_proposed_to_an_ablation() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    ablate, run = commands["ablate"], commands["run"].commands["matrix"]
    assert options_of(run) - options_of(ablate) == {*_OF_CELLS, *_FLAGS_OF_CELLS}


def test_a_fix_that_can_act_in_no_cell_is_told_and_not_passed_over_in_green(fake_world: FakeWorld) -> None:
    run, code = fake_world.run(fake_world.matrix(tp=[1], graph=["on"]), fixes_off=("sync",))
    assert code is ExitCode.PASS
    lines = shown(run.path)
    assert lines[0] == "fix sync cannot act in any cell of this run (it acts where tp is 2 or 4)"
    assert lines[-1].endswith("next: run cells in which what was switched off can act")
    acts, _ = fake_world.run(fake_world.matrix(tp=[1], graph=["off", "on"]), fixes_off=("refresh",))
    assert not any("cannot act" in line for line in shown(acts.path))


def test_an_unfinished_run_does_not_say_that_a_fix_can_act_nowhere(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2]), fixes_off=("sync",))
    cells = run.path / "cells.jsonl"
    cells.write_bytes(b"".join(cells.read_bytes().splitlines(keepends=True)[:2]))
    assert not any("cannot act" in line for line in shown(run.path))


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("request_error", ExitCode.CRASH, "read the errors above"),
        ("signal", ExitCode.CRASH, "read the ranks' logs in 'my runs/attempts/"),
        ("hang", ExitCode.HANG, "compare above where each rank stands; their stacks are in 'my runs/attempts/"),
    ],
)
def test_the_advice_is_that_of_the_verdict_and_its_paths_can_be_typed(
    fault: str, code: ExitCode, said: str, fake_world: FakeWorld
) -> None:
    matrix = fake_world.matrix(tp=[2], fault=["none", fault])
    run, ended = fake_world.run(matrix, run_dir=Path("my runs"))
    assert ended is code
    assert advice(run, code).startswith(said)


def test_memory_that_stays_in_use_is_not_looked_for_in_logs_alone(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["off"]))
    (attempt,) = run.attempts
    assert attempt.finished is not None
    leaked = replace(attempt, finished=attempt.finished.model_copy(update={"verdict": Verdict.LEAK}))
    assert "nvidia-smi" in advice(replace(run, attempts=(leaked,)), ExitCode.CRASH)


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        ("run matrix m.toml --model toy -k graph=on --lanes 2", "m.toml --model toy -k graph=on"),
        ("run matrix --set buckets=1 --golden-dir=mine m.toml", "--golden-dir=mine m.toml"),
        ("run matrix -k graph=on --audit --repeats 2", "m -k graph=on"),
        ("ablate m.toml --fix sync --delay rank=0,site=layers.0,ms=1 --run-dir out", "m.toml"),
    ],
)
def test_the_goldens_that_are_to_be_made_are_those_of_the_run_and_no_template(
    typed: str, proposed: str, fake_world: FakeWorld
) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    words = ("graphcheck", *typed.split())
    of_trials = {"ablation": Ablation(fixes=(), cells={}, num_selected_cells=1)} if "ablate" in words else {}
    info = run.info.model_copy(update={"command": words, **of_trials})
    assert f"; `graphcheck golden regen {proposed}` makes all that this run needs" in advice(
        replace(run, info=info), ExitCode.GOLDEN
    )
    info = info.model_copy(update={"overrides": {"dtype": "float16", "buckets": "1"}})
    said = advice(replace(run, info=info), ExitCode.GOLDEN)
    assert f"`graphcheck golden regen {proposed} --set dtype=float16`" in said


def test_every_option_that_golden_regen_does_not_know_is_left_out_of_its_advice() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    regen = options_of(commands["golden"].commands["regen"])
    run = options_of(commands["ablate"]) | options_of(commands["run"].commands["matrix"])
    no_run = {"--list"}
    left_out = {*_NOT_OF_GOLDENS, *_FLAGS_NOT_OF_GOLDENS}
    assert (run - left_out - no_run, left_out - run) == (set(_OF_GOLDENS), set())
    assert regen == {*_OF_GOLDENS, "--set"}


def test_a_run_that_named_its_folder_is_repeated_into_a_new_one(fake_world: FakeWorld) -> None:
    command = ("graphcheck", "run", "matrix", "m.toml")
    matrix = fake_world.matrix(graph=["on"], fault=["drift"])
    for extra, said in ((), "again to see"), (("--run-dir=out",), "again with a new --run-dir to see"):
        run, _ = fake_world.run(matrix, command=(*command, *extra))
        assert f"run the same command {said} whether" in advice(run, ExitCode.TOKENS)


def test_of_a_damaged_folder_nobody_says_that_something_ended_the_run(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    steps = next((run.path / "steps").iterdir())
    steps.write_bytes(b"")
    lines = shown(run.path)
    assert CONTRADICTED in lines
    assert lines[-1].startswith("exit 2: ")
    assert lines[-1].endswith("; next: restore the folder, or run again")


def test_the_advice_of_a_red_baseline_points_to_the_attempt_that_was_red(fake_world: FakeWorld) -> None:
    run = ablate_in(fake_world, fake_world.matrix(tp=[2], graph=["on"], fault=["none", "hang"])).run
    assert str(run.attempt_dir("tp2-graph_on-fault_hang")) in advice(run, ExitCode.HANG)


def test_the_title_gives_options_as_they_are_typed(fake_world: FakeWorld) -> None:
    request = RunRequest(
        matrix=str(fake_world.matrix(graph=["on"])),
        model="toy",
        ignore_eos=True,
        lanes=2,
        allow_skipped=True,
        require_backend="fake",
        select="graph=on",
        repeats=2,
        share_gpus=True,
        fail_fast=True,
    )
    assert request.overrides().keys() == OPTIONS.keys()
    matrix = fake_world.matrix(graph=["off", "on"])
    run, _ = fake_world.run(matrix, select="not graph=off", settings=("buckets=1,2",))
    console = Console(file=io.StringIO(), width=200)
    render(run, console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines()[0].endswith("; changed: -k 'not graph=off' --set buckets=1,2")

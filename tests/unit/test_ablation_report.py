"""How an ablation looks: a table that fits its console, skipped cells, and red baselines told as matrix runs are."""

import io

import pytest
from rich.console import Console

from graphcheck.harness.records.run_folder import Run
from graphcheck.report.ablation import render_ablation
from graphcheck.report.words import NOT_RUN
from graphcheck.schema.verdicts import Verdict
from tests.fake_ablation import ablate_in, scripted
from tests.fake_world import FakeWorld


def rendered(run: Run, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    render_ablation(run, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def ablated(fake_world: FakeWorld) -> Run:
    """Two fixes with long names over six cells."""
    cells = fake_world.matrix(tp=[1, 2, 4], graph=["off", "on"])
    everywhere = scripted("drift", Verdict.TOKENS, name="metadata-refreshed")
    late = scripted("hang", Verdict.HANG, name="allreduce-synced", where={"tp": (2, 4)})
    return ablate_in(fake_world, cells, everywhere, late).run


@pytest.mark.parametrize("width", [60, 80])
def test_a_console_too_narrow_for_a_column_a_cell_gets_a_row_a_cell_and_no_word_is_cut(
    width: int, ablated: Run
) -> None:
    text = rendered(ablated, width)
    assert "…" not in text
    table = [line for line in text.splitlines() if line.startswith("│")]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table]
    assert max(map(len, table)) <= width
    assert [row[:2] for row in rows if row[1]] == [
        ["metadata-refreshed", "tp1-graph_on"],
        ["", "tp2-graph_on"],
        ["", "tp4-graph_on"],
        ["allreduce-synced", "tp2-graph_off"],
        ["", "tp2-graph_on"],
        ["", "tp4-graph_off"],
        ["", "tp4-graph_on"],
    ]
    assert NOT_RUN not in text, "there is no `-` to explain"


def test_a_wide_console_gets_a_column_a_cell(ablated: Run) -> None:
    text = rendered(ablated, 300)
    assert NOT_RUN in text
    assert "fix off            ┃ tp1-graph_off ┃ tp1-graph_on" in text


def test_what_a_skipped_cell_lacks_is_told_once_and_not_in_the_table(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1, 2], graph=["on"], settings={"device": "cuda"})
    text = rendered(ablate_in(fake_world, matrix, num_devices=1, options={"fixes": ("refresh",)}).run)
    assert text.count("needs 2 cuda devices, found 1") == 1
    assert "\ntp2-graph_on  SKIPPED: needs 2 cuda devices, found 1\n" in text
    (row,) = [line for line in text.splitlines() if line.startswith("│ refresh")]
    assert row.split("│")[3].strip() == "SKIPPED"


def test_a_red_baseline_is_told_with_its_verdict_and_its_key_once(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[2], graph=["on"], fault=["hang"])
    run = ablate_in(fake_world, matrix, command=("graphcheck", "ablate", "m.toml")).run
    lines = rendered(run).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("tp2-graph_on-fault_hang  HANG: ranks"))
    assert lines[first + 1].startswith("  their batches parted at engine step 5: ")
    again = "  again: graphcheck run matrix m.toml -k 'tp=2 and graph=on and fault=hang'"
    assert again in lines[first:]
    assert sum(line.startswith("tp2-graph_on-fault_hang") for line in lines) == 1

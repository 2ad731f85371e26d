"""The report: a function of the run folder, which tells what ran, what is red and why, and what to do next."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from graphcheck.harness.judging.summary import summarize
from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.harness.running.run_matrix import run_matrix
from graphcheck.report import words
from graphcheck.report.console import render
from graphcheck.report.frames import cells_frame
from graphcheck.report.lines import Lines
from graphcheck.report.markdown import markdown
from graphcheck.schema.evidence import AuditFinding, Backend, Evidence
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import RecordedAttempt, RunInfo
from graphcheck.schema.verdicts import Verdict
from tests.fake_world import FakeWorld
from tests.near_ties import calibrated, make_unsure

TAPE = Backend(graph="tape", device_name="CPU")
EAGER = Backend(device_name="CPU")
H200 = Backend(graph="cuda", device="cuda", device_name="NVIDIA H200", collectives="nccl")


def rendered(run: Run, width: int = 100) -> str:
    """The report as a pipe would get it."""
    console = Console(file=io.StringIO(), width=width)
    render(run, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_matrix_of_two_axes_is_a_square_with_graph_across(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2], graph=["off", "on"]), fixes_off=("refresh",))
    lines = rendered(run).splitlines()
    header = next(line for line in lines if "graph off" in line)
    assert header.index("tp") < header.index("graph off") < header.index("graph on")
    rows = [line for line in lines if "replays" in line]
    assert len(rows) == 2
    for row in rows:
        off, on = row.split("│")[2:4]
        assert off.split() == ["PASS", "3/3", "0", "replays", "0.0", "s"]
        assert on.split() == ["TOKENS", "0/3", "11", "replays", "0.0", "s"]


def test_other_axes_give_one_row_a_cell(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2], graph=["off", "on"], lanes=[1, 8]))
    assert len([line for line in rendered(run).splitlines() if "replays" in line]) == 8


def test_the_last_two_lines_add_it_up_and_say_what_to_do(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2], graph=["off", "on"]))
    summary, last = rendered(run).splitlines()[-2:]
    assert summary == "4/4 cells, 12/12 token-exact (fake on CPU, no CUDA graph ran)"
    assert last.startswith("exit 0: pass; next: ")


def test_a_token_difference_is_explained_by_place_and_values(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[2], graph=["on"], fault=["one_rank"]))
    text = rendered(run)
    assert "tp2-graph_on-fault_one_rank  TOKENS: 1 of 3 prompts differ; first 'one' at token 1" in text
    assert (
        "prompt 'one', token 1, rank 1: expected 58, got 59 (golden's margin 2.5); engine step 4, lane 0 of 3, "
        "bucket 4; drift: 1 of 12 tokens wrong on rank 1"
    ) in text


def test_a_hang_is_explained_by_limit_and_each_ranks_place_tags_and_stack(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[2], graph=["on"], fault=["hang"]))
    text = rendered(run)
    assert "HANG: ranks 0, 1 stood still for 2.2" in text
    assert "(limit 2 s)" in text
    for rank, rows in ((0, 3), (1, 4)):
        assert f"rank {rank}: decode, step 5, collective 10, in wait_for_peers for 2." in text
        assert f"#10 reduce rows={rows} bytes={4 * rows} layers.0" in text
    assert (
        "collective #9 does not match: rank 0: reduce of 3 rows, 12 bytes; rank 1: reduce of 4 rows, 16 bytes" in text
    )
    assert "stack wait_for_peers (fake.py:0) < step (fake.py:0) < main (fake.py:1)" in text
    assert str(run.attempt_dir("tp2-graph_on-fault_hang")) in text.splitlines()[-1]


def test_a_crash_is_explained_by_rank_and_signal_and_what_followed(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[2], fault=["signal"]))
    text = rendered(run)
    assert "CRASH: rank 1 was killed by SIGSEGV (signal 11) after step 5" in text
    assert "RuntimeError: Connection closed by peer (after another rank had failed)" in text
    assert text.count("SIGSEGV") == 1


def test_cells_with_the_same_story_share_it(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2, 4], graph=["on"]), fixes_off=("refresh",))
    text = rendered(run)
    assert text.count("engine step 4, lane 0 of 3") == 1
    keys = ", ".join(f"tp{tp}-graph_on.no-refresh" for tp in (1, 2, 4))
    assert f"\n{keys}  TOKENS: 3 of 3 prompts differ" in text
    many, _ = fake_world.run(fake_world.matrix(graph=["on"], lanes=[3, 4, 5, 6, 7, 8]), fixes_off=("refresh",))
    keys = ", ".join(f"graph_on-lanes{lanes}.no-refresh" for lanes in (3, 4, 5, 6))
    assert f"\n{keys} and 2 more cells  TOKENS:" in rendered(many)


def test_what_is_neither_red_nor_plainly_green_is_shown_and_counted(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(graph=["on"], fault=["unwitnessed", "fallback"], expect_fallback=["kv_dtype"])
    run, code = fake_world.run(matrix)
    text = rendered(run)
    assert code is ExitCode.PASS
    assert "UNWITNESSED: rank 0 cannot tell how many lane-tokens it replayed" in text
    assert "PASS (eager by declaration)  3/3" in text
    assert "2/2 cells, 6/6 token-exact (fake on CPU, no CUDA graph ran), 1 unwitnessed, 1 eager by declaration" in text


def test_skipped_and_unfinished_cells_are_not_passed_over(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2], settings={"device": "cuda"}), num_devices=1)
    assert "1/2 cells, 3/6 token-exact (CUDA, no CUDA graph ran), 1 skipped" in rendered(run)
    cells = run.path / "cells.jsonl"
    cells.write_bytes(b"".join(cells.read_bytes().splitlines(keepends=True)[:-1]))
    text = rendered(load_run(run.path))
    assert "UNFINISHED: the run ended before this cell had a verdict" in text
    assert "1 unfinished" in text
    assert text.splitlines()[-1].startswith("exit 8: ")


def test_the_title_names_everything_that_changed_the_matrix(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["off"]), fixes_off=("sync",), lanes=2, ignore_eos=True)
    title = rendered(run).splitlines()[0]
    assert title.endswith("; fixes off: sync; changed: --ignore-eos --lanes 2")


def test_a_missed_backend_is_said_in_the_summary(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["off"]), require_backend="fake")
    summary, last = rendered(run).splitlines()[-2:]
    assert summary.endswith("; --require-backend fake: no green cell replayed graphs on it alone")
    assert last.startswith("exit 5: ")


def test_a_grid_on_a_narrow_terminal_cuts_no_word(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"], fault=["one_rank_eager"], strikes=["decode"]))
    narrow = rendered(run, width=40)
    assert "…" not in narrow
    folded = "".join(line.split("│")[2].strip() for line in narrow.splitlines() if line.startswith("│"))
    assert folded == "one_rank_eager"


def test_a_pipe_gets_no_escape_codes_and_whole_lines(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[2], graph=["on"], fault=["hang", "drift"]))
    narrow = rendered(run, width=60)
    assert "\x1b" not in narrow
    assert (
        "(golden's margin 2.5); engine step 4, lane 0 of 3, bucket 4; drift: 1 of 12 tokens wrong on rank 0" in narrow
    )


def test_words_in_brackets_are_shown_as_they_are(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["off"]), settings=("buckets=1",), command=("[red]x[/red]",))
    edited = run.info.model_copy(update={"matrix_name": "[bold]m[/bold]"})
    assert "matrix [bold]m[/bold] on" in rendered(replace(run, info=edited))


def test_findings_of_the_audit_are_shown_and_those_that_are_left_out_are_counted(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    finished = run.attempts[0].finished
    assert finished is not None
    findings = tuple(
        AuditFinding(clause="tail", buffer="positions", detail="lane 3 is 7", replay=n) for n in (1, 2, 3, 4)
    )
    evidence = {0: finished.facts.evidence[0].model_copy(update={"audit": findings})}
    facts = finished.facts.model_copy(update={"evidence": evidence})
    breached = finished.model_copy(update={"facts": facts, "verdict": Verdict.ERROR, "reason": "tail is broken"})
    attempt = RecordedAttempt(run.attempts[0].started, breached)
    text = rendered(replace(run, attempts=(attempt,)))
    assert "graph_on  ERROR: tail is broken" in text
    assert "audit, rank 0, replay 1: tail of positions: lane 3 is 7" in text
    assert "and 1 more finding of the audit" in text


def test_an_unknown_counter_is_missing_in_the_table_not_zero(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"], fault=["none", "unwitnessed"]))
    cells = cells_frame(run)
    assert list(cells["replays"].isna()) == [False, True]
    assert list(cells["eligible"]) == [23, 23]
    assert list(cells["fault"]) == ["none", "unwitnessed"]


@pytest.mark.parametrize(
    ("backends", "gpus", "phrase"),
    [
        ([EAGER, TAPE], [None], "tape on CPU, no CUDA graph ran"),
        ([EAGER], [None], "CPU, no CUDA graph ran"),
        ([H200, H200.model_copy(update={"graph": None})], ["a", "b"], "CUDA graphs, 2x H200, nccl"),
        ([H200], ["a", "b", "a"], "CUDA graphs, 2x H200, nccl, up to 2 ranks a GPU"),
        ([H200], ["a", "a"], "CUDA graphs, 1x H200, nccl, up to 2 ranks a GPU"),
        ([H200.model_copy(update={"collectives": None})], ["a"], "CUDA graphs, 1x H200"),
        ([H200], [None], "CUDA graphs, H200, nccl"),
        ([H200, TAPE], ["a"], "cuda + tape on CPU + CUDA"),
        ([], [], "no rank told what it ran on"),
    ],
)
def test_every_summary_names_what_the_work_ran_on_and_no_gpu_that_merely_was_there(
    backends: list[Backend], gpus: list[str | None], phrase: str, fake_world: FakeWorld
) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["off"]))
    ((cell, finished),) = [(attempt, attempt.finished) for attempt in run.attempts if attempt.finished is not None]
    evidence = {rank: Evidence(gpu=gpu) for rank, gpu in enumerate(gpus)}
    facts = finished.facts.model_copy(update={"evidence": evidence})
    attempts = [
        replace(cell, finished=finished.model_copy(update={"facts": facts, "backend": backend}))
        for backend in backends or [None]
    ]
    assert words.backend_phrase(summarize(run.info, attempts)) == phrase


def test_an_nvidia_device_with_a_cpu_build_of_torch_is_warned_about_in_line_one(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["off"]))

    def first_line(**environment: str) -> str:
        info: RunInfo = run.info.model_copy(update={"environment": {"torch": "2.13.0+cpu"} | environment})
        return rendered(replace(run, info=info)).splitlines()[0]

    assert first_line(nvidia_devices="2", torch_cuda="none").startswith("warning: this machine has 2 NVIDIA device(s)")
    assert first_line(nvidia_devices="2", torch_cuda="13.0").startswith("graphcheck")
    assert first_line(nvidia_devices="0", torch_cuda="none").startswith("graphcheck")


def test_a_cell_that_rests_on_near_ties_says_how_many(fake_world: FakeWorld) -> None:
    make_unsure(fake_world)
    matrix = fake_world.matrix(graph=["on"], settings={"fault": "drift"})
    calibrated(fake_world, matrix)
    run, _ = fake_world.run(matrix, gives_forced=True)
    assert "PASS  2/3 +1 near tie  11 replays" in rendered(run)
    assert "PASS 2/3 +1 near tie, 11 replays" in markdown(run)
    assert "(fake on CPU, no CUDA graph ran), 1 near tie\n" in rendered(run)


def test_the_grid_and_the_line_of_a_cell_with_a_forced_pass_tell_the_same_seconds(fake_world: FakeWorld) -> None:
    paper = Console(file=io.StringIO(), width=200)
    request = RunRequest(matrix=str(fake_world.matrix(tp=[2], graph=["on"], fault=["hang"])))
    ran = run_matrix(request, Lines(paper, fake_world.clock.now), fake_world.surroundings(gives_forced=True))
    assert isinstance(paper.file, io.StringIO)
    told = re.search(r"HANG  0/3  (\d\.\d) s", paper.file.getvalue())
    shown = re.search(r"HANG  0/3  \? replays  (\d\.\d) s", rendered(load_run(ran.path)))
    assert told is not None
    assert shown is not None
    assert float(told[1]) == float(shown[1]) > 4.0, "two hangs of 2.2 s"


def test_a_cell_with_an_axis_of_its_own_leaves_it_empty_elsewhere(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2]))
    first = run.attempts[0].started
    cell = first.attempt.cell.model_copy(update={"axes": {"tp": 1, "lanes": 4}})
    extra = first.model_copy(update={"attempt": first.attempt.model_copy(update={"cell": cell})})
    attempts = (*run.attempts, RecordedAttempt(extra, run.attempts[0].finished))
    rows = [
        line.split("│")[1:3]
        for line in rendered(replace(run, attempts=attempts, notes=())).splitlines()
        if "3/3" in line
    ]
    assert [[value.strip() for value in row] for row in rows] == [["1", ""], ["2", ""], ["1", "4"]]

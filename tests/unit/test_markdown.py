"""The block for a pull request: what it always says, what it says when things went wrong, and what it never says."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from graphcheck.harness.files.golden_store import read_golden, write_golden
from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.report.markdown import markdown, print_markdown
from graphcheck.report.tally import evidence_line
from graphcheck.report.words import RED_BASELINE
from graphcheck.schema.errors import GoldenCorrupt
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import AttemptFinished, NearTie, RecordedAttempt
from graphcheck.schema.verdicts import Outcome, Verdict
from tests.fake_ablation import ablate_in, scripted
from tests.fake_world import FakeWorld

GREEN = (
    "valid cells 4/4; exact 12/12; request errors 0, time-outs 0, OOMs 0, collapse 0, loops 0, abnormal lengths 0; "
    "near ties 0"
)


def four_cells(world: FakeWorld, **request: object) -> Run:
    return world.run(world.matrix(tp=[1, 2], graph=["off", "on"]), **request)[0]


def limitations(block: str) -> list[str]:
    return block.partition("### Limitations\n\n")[2].splitlines()


def edited(run: Run, **changes: object) -> Run:
    """The run with changes to the finished record of its first attempt."""
    first = run.attempts[0]
    assert first.finished is not None
    return replace(
        run, attempts=(RecordedAttempt(first.started, first.finished.model_copy(update=changes)), *run.attempts[1:])
    )


def on_one_gpu(attempt: RecordedAttempt) -> RecordedAttempt:
    assert attempt.finished is not None
    facts = attempt.finished.facts
    evidence = {rank: own.model_copy(update={"gpu": "GPU-0"}) for rank, own in facts.evidence.items()}
    moved = attempt.finished.model_copy(update={"facts": facts.model_copy(update={"evidence": evidence})})
    return replace(attempt, finished=moved)


def test_a_green_run_says_everything_in_order(fake_world: FakeWorld) -> None:
    typed = ("graphcheck", "run", "matrix", "m.toml", "-k", "tp=1 or tp=2", "--fail-fast")
    run = four_cells(fake_world, command=(*typed, "--run-dir", "out", "--format=markdown"))
    golden = read_golden(fake_world.golden_file).header
    block = markdown(run)
    parts = [
        "## graphcheck: 4/4 cells, 12/12 token-exact (fake on CPU, no CUDA graph ran)",
        "| result | exit 0: pass |",
        "| backend | fake on CPU, no CUDA graph ran |",
        f"| environment | python {run.info.environment['python']}, ",
        f"| model toy | sha256: config {golden.model['config'][:12]}, weights {golden.model['weights'][:12]}",
        f"| golden toy/trio | sha256: {golden.body_sha[:12]}; 3 prompts by the rule () |",
        f"\n{GREEN}\n",
        "| tp | graph off | graph on |\n| --- | --- | --- |\n| 1 | PASS 3/3, 0 replays | PASS 3/3, 11 replays |\n",
        "### To repeat\n\n```text\nby hand\ngraphcheck run matrix m.toml -k 'tp=1 or tp=2' --fail-fast\n```\n",
        "### Limitations\n\n- ",
    ]
    assert [block.index(part) for part in parts] == sorted(block.index(part) for part in parts)
    assert "Not a plain PASS" not in block


def test_the_limitations_are_said_even_where_there_are_none(fake_world: FakeWorld) -> None:
    assert limitations(markdown(four_cells(fake_world))) == [
        "- Backend and devices: fake on CPU, no CUDA graph ran; no other was tried. "
        "This is no evidence about CUDA graphs, NCCL or GPUs.",
        "- Cells not run: none.",
        "- Shared GPUs: none.",
        "- Injected delays: none.",
        "- One value only: model toy, suite trio, device cpu, lanes 8, buckets 1,2,4,8, fault none, logits off, "
        "strikes decode.",
        "- Soft steps (too close to call, not judged hard): 0 of 26.",
        "- Graphs stay opt-in: nothing here asks for another default.",
        "- No performance claim: times are not compared.",
    ]


def test_the_limitations_are_drawn_from_the_run(fake_world: FakeWorld) -> None:
    golden = read_golden(fake_world.golden_file)
    first = golden.prompts[0]
    soft = first.model_copy(update={"steps": (first.steps[0].model_copy(update={"soft": True}), *first.steps[1:])})
    header = golden.header.model_dump(exclude={"format", "num_prompts", "body_sha"})
    write_golden(fake_world.golden_file, header, (soft, *golden.prompts[1:]))
    matrix = fake_world.matrix(
        tp=[1, 2, 4],
        graph=["off", "on"],
        settings={"device": "cuda", "fault": "fallback"},
        expect_fallback=["kv_dtype"],
    )
    run, _ = fake_world.run(matrix, num_devices=2, select="graph=on")
    run = replace(run, attempts=tuple(map(on_one_gpu, run.attempts)))
    said = limitations(markdown(run))
    assert "- Cells not run: those that `-k graph=on` leaves out; tp4-graph_on (needs 4 cuda devices, found 2)." in said
    assert "- Shared GPUs: up to 2 ranks on one, which slow each other and take turns." in said
    assert "- Soft steps (too close to call, not judged hard): 1 of 26." in said
    assert "- Eager by declaration: in 2 of 3 cells graphs were on and fell back, as the matrix says they do." in said


def test_cells_that_cannot_tell_are_a_limitation_and_no_plain_pass(fake_world: FakeWorld) -> None:
    block = markdown(fake_world.run(fake_world.matrix(graph=["on"], fault=["unwitnessed"]))[0])
    assert "- Unwitnessed: in 1 of 1 cells nobody could tell whether graphs were replayed." in limitations(block)
    assert "graph_on-fault_unwitnessed  UNWITNESSED: rank 0 cannot tell" in block
    assert "| unwitnessed | UNWITNESSED 3/3, ? replays |" in block


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (
            "request_error",
            "cells 0/1; exact 2/3; request errors 1, time-outs 0, OOMs 0, collapse 0, loops 0, abnormal lengths 0",
        ),
        ("spin", "exact 0/3; request errors 0, time-outs 1, OOMs 0, collapse 0, loops 0, abnormal lengths 0"),
        ("oom", "request errors 0, time-outs 0, OOMs 1, collapse 0"),
        ("repeat", "request errors 0, time-outs 0, OOMs 0, collapse 3, loops 0, abnormal lengths 0"),
        ("short", "exact 0/3; request errors 0, time-outs 0, OOMs 0, collapse 0, loops 0, abnormal lengths 3"),
        ("hang", "collapse 0, loops 0, abnormal lengths 0; near ties 0; hangs 1"),
        ("signal", "near ties 0; crashes 1"),
    ],
)
def test_each_kind_of_failure_is_counted(fault: str, line: str, fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[2], graph=["on"], fault=[fault]))
    assert line in evidence_line(run.info, run.attempts)


def test_loops_and_near_ties_are_counted(fake_world: FakeWorld) -> None:
    run = four_cells(fake_world)
    finished = run.attempts[0].finished
    assert finished is not None
    loop, tie = (
        finished.prompts[0].model_copy(update={"loop": 2}),
        finished.prompts[1].model_copy(
            update={
                "outcome": Outcome.NEAR_TIE,
                "near_ties": tuple(NearTie(step=n, expected=1, got=2, margin_ulp=0.5) for n in (1, 4)),
            }
        ),
    )
    run = edited(run, prompts=(loop, tie, finished.prompts[2]))
    assert evidence_line(run.info, run.attempts) == (
        "valid cells 4/4; exact 11/12; request errors 0, time-outs 0, OOMs 0, collapse 0, loops 1, abnormal lengths 0; "
        "near ties 2"
    )


def test_what_is_not_green_is_explained_once_and_shortly(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2, 4], graph=["on"]), fixes_off=("refresh",))
    block = markdown(run)
    assert "| changed | fixes off: refresh |" in block
    assert "| result | exit 1: tokens differ from the golden, or a cell disagrees with itself |" in block
    story = block.partition("### Not a plain PASS\n\n```text\n")[2].partition("\n```")[0].splitlines()
    cells = ", ".join(f"tp{tp}-graph_on.no-refresh" for tp in (1, 2, 4))
    assert story[0] == f"{cells}  TOKENS: 3 of 3 prompts differ; first 'one' at token 1"
    assert story[1].startswith("  prompt 'one', token 1, rank 0: expected 58, got 59")
    assert len(story) == 2


def test_a_hang_is_told_without_tags_and_stacks(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[2], graph=["on"], fault=["hang"]))
    block = markdown(run)
    for part in ("HANG: ranks 0, 1 stood still", "collective #9 does not match", "  rank 1: decode, step 5"):
        assert part in block
    assert "stack" not in block
    assert "last tags" not in block


def test_an_ablation_shows_baseline_table_findings_and_the_hang(fake_world: FakeWorld) -> None:
    fix = scripted("part", Verdict.HANG, name="joined", where={"tp": (2,)})
    matrix = fake_world.matrix(tp=[1, 2], graph=["off", "on"])
    drift = scripted("drift", Verdict.TOKENS, name="fresh")
    ablated = ablate_in(fake_world, matrix, fix, drift, gives_forced=True, command=("graphcheck", "ablate", "m.toml"))
    block = markdown(ablated.run)
    assert block.startswith("## graphcheck: 2/2 fixes proven necessary; baseline 4/4 cells, 12/12 token-exact (fake on")
    assert f"\n{GREEN}\n" in block
    assert "| fix off | tp1-graph_off | tp1-graph_on | tp2-graph_off | tp2-graph_on | finding |" in block
    assert "| joined | - | - | HANG in decode, step 5 | HANG in decode, step 5 | NECESSARY |" in block
    assert "| fresh | - | TOKENS from token 1, 1 of 3 prompts | - | TOKENS from token 1, 1 of 3 prompts |" in block
    assert "-: the fix cannot act in this cell" in block
    everywhere = ablate_in(fake_world, fake_world.matrix(graph=["on"]), drift)
    assert "-: the fix" not in markdown(everywhere.run)
    assert "joined  NECESSARY: without it HANG in decode in 2 of 2 cells" in block
    hang = block.partition("### The hang\n\n```text\n")[2].partition("\n```")[0]
    assert hang.startswith("tp2-graph_off.no-joined  HANG: ranks 0, 1 stood still")
    assert "  their batches parted at engine step 5" in hang
    assert "tp2-graph_on" not in hang, "the first hang of a fix stands for the others"
    assert "Not a plain PASS" not in block
    said = limitations(block)
    once = "Fixes were switched off one at a time, once in each cell where they can act; never two together."
    assert f"- {once}" in said


def test_an_ablation_of_which_every_trial_was_skipped_claims_no_trial(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(tp=[1, 2], graph=["on"], settings={"device": "cuda"})
    block = markdown(ablate_in(fake_world, matrix, options={"fixes": ("refresh",)}).run)
    assert "| refresh | SKIPPED | SKIPPED | CANNOT ACT HERE |" in block
    assert "switched off one at a time" not in block
    some = ablate_in(fake_world, matrix, num_devices=1, options={"fixes": ("refresh",)}).run
    assert "switched off one at a time" in markdown(some)


def test_ranks_that_hung_on_gpus_and_told_nothing_are_not_called_no_evidence_about_gpus(fake_world: FakeWorld) -> None:
    def backend(device: str, num_devices: int = 0) -> str:
        matrix = fake_world.matrix(tp=[1], graph=["on"], settings={"device": device, "fault": "hang_capture"})
        run, _ = fake_world.run(matrix, num_devices=num_devices)
        run = edited(run, backend=None)
        return limitations(markdown(run))[0]

    no_evidence = "This is no evidence about CUDA graphs, NCCL or GPUs."
    assert backend("cuda", 1) == "- Backend and devices: no rank told what it ran on; no other was tried."
    assert backend("cpu").endswith(no_evidence)
    assert backend("cuda", 0).endswith(no_evidence), "it was skipped"


def test_injected_delays_are_a_limitation(fake_world: FakeWorld) -> None:
    options = {"delays": ("rank=0,site=layers.1,ms=5",), "fixes": ("refresh",), "repeats": 2}
    block = markdown(ablate_in(fake_world, fake_world.matrix(graph=["on"]), options=options).run)
    assert "- Injected delays: rank0@layers.1=5ms." in limitations(block)
    assert "switched off one at a time, 2 times in each cell" in block
    assert "TOKENS 4/4 from token 1" in block


def test_a_red_baseline_has_no_ablation_table(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(graph=["on"], fault=["drift", "none"])
    block = markdown(ablate_in(fake_world, matrix).run)
    assert RED_BASELINE in block.splitlines()[0]
    assert "baseline 0/2 cells" in block
    assert "TOKENS: 1 of 3 prompts differ" in block
    assert "### Ablation" not in block
    assert "- Cells not run: 5 of 6 attempts, because the baseline was red." in limitations(block)
    assert "switched off one at a time" not in block


def test_a_restored_run_that_is_red_is_explained(fake_world: FakeWorld) -> None:
    run = ablate_in(fake_world, fake_world.matrix(graph=["on"]), scripted("drift", Verdict.TOKENS)).run
    *others, last = run.attempts
    assert last.finished is not None
    red = last.finished.model_copy(update={"verdict": Verdict.TOKENS, "reason": "again"})
    block = markdown(replace(run, attempts=(*others, RecordedAttempt(last.started, red))))
    assert "graph_on.r1  TOKENS: again" in block
    assert "0/1 fixes proven" in block


def test_a_cut_off_run_says_what_is_missing(fake_world: FakeWorld) -> None:
    run = four_cells(fake_world)
    cells = run.path / "cells.jsonl"
    cells.write_bytes(b"".join(cells.read_bytes().splitlines(keepends=True)[:-1]))
    block = markdown(load_run(run.path))
    assert "| 2 | PASS 3/3, 0 replays | UNFINISHED |" in block
    assert "1 of 4 attempts, because the run ended first" in block


def test_a_cpu_build_of_torch_beside_a_gpu_is_warned_about_in_line_one(fake_world: FakeWorld) -> None:
    run = four_cells(fake_world)
    environment = {"torch": "2.13.0+cpu", "nvidia_devices": "2", "torch_cuda": "none"}
    run = replace(run, info=run.info.model_copy(update={"environment": environment}))
    assert markdown(run).startswith("> warning: this machine has 2 NVIDIA device(s)")


def test_other_axes_give_one_row_a_cell(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1], graph=["on"], lanes=[4, 8]))
    assert (
        "| tp | graph | lanes | cell |\n| --- | --- | --- | --- |\n| 1 | on | 4 | PASS 3/3, 11 replays |"
        in markdown(run)
    )


def test_a_damaged_golden_is_no_evidence(fake_world: FakeWorld) -> None:
    run = four_cells(fake_world)
    (run.path / "golden" / "toy" / "trio.jsonl").unlink()
    with pytest.raises(GoldenCorrupt):
        markdown(run)


def test_a_run_without_any_golden_still_has_its_block(fake_world: FakeWorld) -> None:
    fake_world.golden_file.unlink()
    block = markdown(four_cells(fake_world))
    assert "| result | exit 6: golden missing, stale or corrupt |" in block
    assert "| 1 | MISSING | MISSING |" in block


def test_the_block_is_a_function_of_the_folder_alone(fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    run = four_cells(fake_world, fixes_off=("sync",))
    fake_world.golden_file.unlink()
    monkeypatch.chdir("/")
    assert markdown(load_run(fake_world.path / run.path)) == markdown(replace(run, path=fake_world.path / run.path))


def test_what_markdown_would_change_or_link_is_shown_as_code(fake_world: FakeWorld) -> None:
    fix = scripted("raise", Verdict.CRASH)
    run = ablate_in(fake_world, fake_world.matrix(tp=[1], graph=["on"]), fix).run
    hostile = "rank 0 raised `X` | see #22 of @someone <b>\n```\nmore"

    def spoil(finished: AttemptFinished | None) -> AttemptFinished | None:
        is_red = finished is not None and not finished.verdict.is_green
        return finished.model_copy(update={"reason": hostile}) if is_red else finished

    attempts = tuple(RecordedAttempt(attempt.started, spoil(attempt.finished)) for attempt in run.attempts)
    block = markdown(replace(run, attempts=attempts))
    row = next(line for line in block.splitlines() if line.startswith("| scripted"))
    assert row == ("| scripted | `CRASH rank 0 raised 'X' \\| see #22 of @someone <b> ''' more` | NECESSARY |")
    red = edited(four_cells(fake_world), verdict=Verdict.ERROR, reason=hostile)
    assert "````text\ntp1-graph_off  ERROR: rank 0 raised" in markdown(red)


def test_nothing_private_is_printed(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = fake_world.path / "people" / "planted-user"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOGNAME", "planted-user")
    monkeypatch.setenv("PLANTED_TOKEN", "s3cr3t-value")
    monkeypatch.setenv("PLANTED_FIX", "graph_on.no-refresh")
    monkeypatch.setattr("platform.node", lambda: "planted-host")
    private = (str(home), "planted-user", "planted-host", "10.11.12.13", "02:42:ac:11:00:02", "s3cr3t-value")
    told = "{}/x by {} on {} at {} ({}) with {}".format(*private)
    run, _ = fake_world.run(
        fake_world.matrix(graph=["on"]),
        fixes_off=("refresh",),
        command=("graphcheck", "run", "matrix", "--golden-dir", str(home / "golden")),
    )
    run = edited(run, reason=told)
    console = Console(file=io.StringIO(), width=80)
    code = print_markdown(run, console)
    assert isinstance(console.file, io.StringIO)
    block = console.file.getvalue()
    assert [word for word in private if word in markdown(run)] == list(private), "all planted"
    assert [word for word in private if word in block] == []
    assert "TOKENS: ~/x by <user> on <host> at <address> (<address>) with $PLANTED_TOKEN" in block
    assert "graphcheck run matrix --golden-dir ~/golden" in block
    assert "graph_on.no-refresh  TOKENS" in block
    aside = capsys.readouterr().err.splitlines()
    assert aside == [
        "public-content check: address x 2, environment value x 1, home path x 2, host name x 1, user name x 1 "
        "taken out",
        "exit 1: tokens differ from the golden, or a cell disagrees with itself",
    ]
    assert code is ExitCode.TOKENS


def test_a_variable_that_holds_the_name_of_a_fix_does_not_blot_it_out(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_FIX", "pad-clear")
    fix = scripted("drift", Verdict.TOKENS, name="pad-clear")
    console = Console(file=io.StringIO(), width=80)
    print_markdown(ablate_in(fake_world, fake_world.matrix(graph=["on"]), fix).run, console)
    assert isinstance(console.file, io.StringIO)
    assert "\npad-clear  NECESSARY: " in console.file.getvalue()


def test_the_run_folder_itself_is_not_named(fake_world: FakeWorld) -> None:
    run = four_cells(fake_world, run_dir=Path("somewhere/private"))
    assert "somewhere" not in markdown(run)

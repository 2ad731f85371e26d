"""`graphcheck run matrix` on the bundled engine: six cells, and each way in which they must turn red."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from graphcheck.harness.files.golden_store import read_golden, write_golden
from graphcheck.schema.golden import GoldenStep
from graphcheck.schema.verdicts import Outcome, Verdict
from graphcheck.shipped import golden_dir, models_dir
from tests.cli.conftest import Program
from tests.cli.program import Done, descendants, finish, is_alive, start, wait_until
from tests.tiny_model import make_tiny_llama

GRAPH_ON = {f"tp{tp}-graph_on" for tp in (1, 2, 4)}
CELLS = {f"tp{tp}-graph_{graph}" for tp in (1, 2, 4) for graph in ("off", "on")}
TAPE = "(tape on CPU, no CUDA graph ran)"


def red(done: Done, verdict: Verdict) -> set[str]:
    return {cell for cell, attempt in done.attempts().items() if attempt.verdict is verdict}


def wrong_prompts(done: Done, cell: str) -> dict[str, int | None]:
    """Prompt -> output index of its first wrong token."""
    return {prompt.prompt: prompt.step for prompt in done.attempts()[cell].prompts if prompt.outcome != Outcome.EXACT}


def test_six_cells_are_exact_in_an_empty_folder(tmp_path: Path) -> None:
    done = finish(start(tmp_path, "run", "matrix"), tmp_path)
    assert done.code == 0, done.output
    assert done.last_lines[0] == f"6/6 cells, 72/72 token-exact {TAPE}"
    assert done.last_lines[1].startswith("exit 0: pass; next: ")
    assert set(done.attempts()) == CELLS
    for cell, attempt in done.attempts().items():
        for evidence in attempt.facts.evidence.values():
            assert evidence.replayed_lane_tokens == (attempt.eligible_lane_tokens if cell in GRAPH_ON else 0)


def test_audited_run_checks_every_clause_around_every_replay_and_finds_nothing(program: Program) -> None:
    audited = program("run", "matrix", "--audit", "-k", "graph=on and not tp=2")
    assert audited.code == 0, audited.output
    findings = [evidence.audit for a in audited.attempts().values() for evidence in a.facts.evidence.values()]
    assert [audit for audit in findings if audit] == []
    assert sum(audit is not None for audit in findings) == 1 + 4


def test_without_metadata_refresh_every_prompt_is_wrong_with_graphs_on(program: Program) -> None:
    done = program("run", "matrix", "--disable-fix", "metadata-refresh", "-k", "tp=1 or (tp=4 and graph=on)")
    assert done.code == 1, done.output
    assert done.last_lines[0] == f"1/3 cells, 12/36 token-exact {TAPE}"
    assert red(done, Verdict.TOKENS) == GRAPH_ON - {"tp2-graph_on"}
    assert all(len(wrong_prompts(done, cell)) == 12 for cell in red(done, Verdict.TOKENS))


@pytest.mark.parametrize("fix", ["device-metadata", "stable-buffers"])
def test_without_the_fix_one_of_the_first_three_replays_is_wrong_at_the_same_place_everywhere(
    program: Program, fix: str
) -> None:
    done = program("run", "matrix", "--disable-fix", fix, "-k", "tp=1 or (tp=2 and graph=on)")
    assert done.code == 1, done.output
    assert red(done, Verdict.TOKENS) == GRAPH_ON - {"tp4-graph_on"}
    first = [wrong_prompts(done, cell) for cell in red(done, Verdict.TOKENS)]
    # Token 0 comes from prefill, so that tokens 1, 2 and 3 are the first that a replay makes.
    assert all(len(prompts) == 12 and set(prompts.values()) <= {1, 2, 3} for prompts in first)
    again = program("run", "matrix", "--disable-fix", fix, "-k", "tp=1 and graph=on")
    assert [*first, wrong_prompts(again, "tp1-graph_on")] == [first[0]] * 3, "the place moves"


def test_without_pad_clear_a_live_sequence_is_corrupted_with_graphs_on(program: Program) -> None:
    done = program("run", "matrix", "--disable-fix", "pad-clear", "-k", "not tp=4")
    assert done.code == 1, done.output
    assert red(done, Verdict.TOKENS) == GRAPH_ON - {"tp4-graph_on"}
    assert all(0 < len(wrong_prompts(done, cell)) < 12 for cell in red(done, Verdict.TOKENS))


def test_without_allreduce_sync_tp_hangs_and_both_sides_are_shown(program: Program) -> None:
    done = program("run", "matrix", "--disable-fix", "allreduce-sync", "-k", "not tp=2")
    assert done.code == 3, done.output
    assert red(done, Verdict.PASS) == {"tp1-graph_off", "tp1-graph_on"}
    assert red(done, Verdict.HANG) == {"tp4-graph_off", "tp4-graph_on"}
    for cell in red(done, Verdict.HANG):
        stall = done.attempts()[cell].facts.stall
        assert stall is not None
        assert stall.stalled_seconds <= stall.limit_seconds + 1.0
        last = [journal.tags[-1] for journal in stall.journals]
        assert len({tag.number for tag in last}) == 1, "the ranks wait for each other at the same collective"
        assert len({tag.rows for tag in last}) > 1, "because their batches have parted"
        assert all(journal.waiting == "wait_for_peers" for journal in stall.journals)
        assert all("in wait_for_peers" in stall.stacks[journal.rank] for journal in stall.journals)
        assert all(f"rank {journal.rank}: " in done.output for journal in stall.journals)
        # The suite's stop rule makes ranks that disagree part within a few steps.
        assert stall.step <= 20
        story = done.attempts()[cell].story
        assert story is not None
        assert story.disagreement is not None
        assert "does not hang" in story.cause
    assert "does not match" in done.output


def test_ignored_eos_is_exact_alone_and_without_sync_it_is_wrong_but_does_not_hang(program: Program) -> None:
    alone = program("run", "matrix", "--ignore-eos", "-k", "tp=2")
    assert (alone.code, alone.last_lines[0]) == (0, f"2/2 cells, 24/24 token-exact {TAPE}"), alone.output
    arguments = ["--ignore-eos", "--disable-fix", "allreduce-sync", "--lanes", "12"]
    without = program("run", "matrix", *arguments, "-k", "(tp=2 and graph=off) or (tp=4 and graph=on)")
    assert without.code == 1, without.output
    assert red(without, Verdict.TOKENS) == {"tp2-graph_off", "tp4-graph_on"}, "and none hangs"


@pytest.mark.usefixtures("inline_reference")
def test_random_checkpoint_whose_shapes_divide_by_nothing(program: Program, tmp_path: Path) -> None:
    model = tmp_path / "odd"
    make_tiny_llama(model, vocab_size=211, num_heads=6, num_kv_heads=2, intermediate_size=344)
    shutil.copy(models_dir() / "probe" / "tokenizer.json", model)
    missing = program("run", "matrix", "--model", "odd")
    assert missing.code == 6
    assert "golden regen" in missing.output
    regen = program("golden", "regen", "--model", "odd")
    assert regen.code == 0, regen.output
    done = program("run", "matrix", "--model", "odd", "-k", "tp=2")
    assert (done.code, done.last_lines[0]) == (0, f"2/2 cells, 24/24 token-exact {TAPE}"), done.output


def test_one_changed_weight_byte_makes_the_golden_stale(program: Program, tmp_path: Path) -> None:
    model = shutil.copytree(models_dir() / "probe", tmp_path / "probe")
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    done = program("run", "matrix", "--model", str(model))
    assert done.code == 6, done.output
    assert red(done, Verdict.STALE) == CELLS
    assert "weights" in done.output


def test_one_changed_golden_token_is_named_with_prompt_and_step(program: Program, tmp_path: Path) -> None:
    golden = read_golden(golden_dir() / "probe" / "twelve.jsonl")
    victim = golden.prompts[4]
    ids = list(victim.ids)
    ids[2] = ids[2] + 1 if ids[2] + 1 != ids[3] else ids[2] + 2
    steps = list(victim.steps)
    steps[2] = GoldenStep(top=((ids[2], steps[2].top[0][1]), *steps[2].top[1:]))
    prompts = list(golden.prompts)
    prompts[4] = victim.model_copy(update={"ids": tuple(ids), "steps": tuple(steps)})
    header = golden.header.model_dump(exclude={"format", "num_prompts", "body_sha"})
    write_golden(tmp_path / "golden" / "probe" / "twelve.jsonl", header, prompts)
    done = program("run", "matrix", "-k", "tp=1")
    assert done.code == 1, done.output
    assert len(done.attempts()) == 2
    assert all(wrong_prompts(done, cell) == {victim.id: 2} for cell in done.attempts())
    assert f"prompt '{victim.id}', token 2" in done.output


def test_killed_rank_is_a_crash_and_the_other_cells_run(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "matrix", "-k", "tp=4")

    def decoding() -> bool:
        steps = list(tmp_path.glob("runs/*/steps/tp4-graph_off.jsonl"))
        return bool(steps) and '"decode"' in steps[0].read_text()

    wait_until(decoding, 120, "tp4-graph_off decodes")
    (server,) = descendants(process.pid) - {rank for child in descendants(process.pid) for rank in descendants(child)}
    victim = max(descendants(server))
    os.kill(victim, signal.SIGKILL)
    done = finish(process, tmp_path)
    assert done.code == 4, done.output
    assert red(done, Verdict.CRASH) == {"tp4-graph_off"}
    assert red(done, Verdict.PASS) == {"tp4-graph_on"}
    assert "was killed by SIGKILL" in done.attempts()["tp4-graph_off"].reason


def test_killed_supervisor_leaves_no_process_and_no_memory(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "matrix", "-k", "tp=2")
    wait_until(lambda: bool(list(tmp_path.glob("runs/*/steps/tp2-graph_on.jsonl"))), 120, "tp2-graph_on runs")
    family = descendants(process.pid)
    assert family
    process.kill()
    process.communicate()
    wait_until(lambda: not any(is_alive(member) for member in family), 2.0, "all ranks gone")
    assert not list(Path("/dev/shm").glob("*graphcheck*"))
    (run_folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((run_folder / "run.json").read_text())["ended"] is None

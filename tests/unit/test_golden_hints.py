"""What to do about a golden: the command that makes just that one again, as it can be typed."""

from pathlib import Path

import pytest

from graphcheck.harness.files.golden_store import read_golden, write_golden
from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.golden.check import check_goldens
from graphcheck.harness.golden.pending import find_pending, review_against
from graphcheck.harness.planning.golden_commands import calibrate_command, regen_command, without_places
from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.records.run_folder import Run
from graphcheck.schema.errors import GoldenCorrupt
from tests.fake_world import FakeWorld
from tests.near_ties import calibrated, make_unsure

GOLDEN = Path("golden/toy/trio.jsonl")
FILE = GOLDEN.with_suffix(".calibration")


def reasons(run: Run) -> set[str]:
    return {attempt.finished.reason for attempt in run.attempts if attempt.finished is not None}


def test_a_golden_is_made_again_for_what_was_run_and_not_for_default(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(graph=["off", "on"])
    GOLDEN.unlink()
    Path("mine").mkdir()
    run, _ = fake_world.run(matrix, model="toy", golden_dir=Path("mine"), select="graph=on", lanes=4)
    (reason,) = reasons(run)
    command = f"graphcheck golden regen {matrix} --model toy --golden-dir mine -k graph=on"
    assert reason.endswith(f"; make it with `{command}`")


def test_of_the_settings_of_a_run_those_that_matter_are_named() -> None:
    settings = ("kv=static", "dtype=float16", "logits=digest")
    request = RunRequest(matrix="my m.toml", model="a/b", golden_dir=Path("g"), settings=settings)
    assert regen_command(request) == (
        "graphcheck golden regen 'my m.toml' --model a/b --golden-dir g --set dtype=float16"
    )
    assert calibrate_command(request) == (
        "graphcheck golden calibrate 'my m.toml' --model a/b --golden-dir g --set kv=static --set dtype=float16"
    )
    assert regen_command(without_places(request, "m")) == "graphcheck golden regen m --model b --set dtype=float16"


@pytest.mark.parametrize("damage", [b'{"format": 9}\n', b"cut off"])
def test_check_names_the_command_of_the_matrix_that_uses_a_golden(fake_world: FakeWorld, damage: bytes) -> None:
    matrix = fake_world.matrix(graph=["off"])
    GOLDEN.write_bytes(damage)
    (problem,) = (line for line in check_goldens(None, [load_matrix(str(matrix))]).problems if "toy" in line)
    assert problem.endswith(f"; make it again with `graphcheck golden regen {matrix}`")


def test_a_calibration_is_measured_again_for_what_was_run(fake_world: FakeWorld) -> None:
    make_unsure(fake_world)
    matrix = fake_world.matrix(graph=["on"], settings={"fault": "drift"})
    calibrated(fake_world, matrix)
    FILE.write_bytes(b"cut off")
    run, _ = fake_world.run(matrix, gives_forced=True, settings=("lanes=2",))
    (reason,) = reasons(run)
    assert reason.endswith(f"; measure it again with `graphcheck golden calibrate {matrix} --set lanes=2`")


def test_prompt_ids_that_changed_name_the_command_too(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(graph=["off"])
    golden = read_golden(GOLDEN)
    one, *others = golden.prompts
    fields = golden.header.model_dump(exclude={"format", "num_prompts", "body_sha"})
    write_golden(GOLDEN, fields, [one.model_copy(update={"prompt_ids": (3, 14, 16)}), *others])
    run, _ = fake_world.run(matrix)
    (reason,) = reasons(run)
    assert "its prompt_ids are not what the tokenizer gives now" in reason
    assert reason.endswith(f"; make it again with `graphcheck golden regen {matrix}`")


def test_what_a_damaged_copy_in_a_run_folder_needs_is_no_new_golden(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["off"]))
    (run.path / GOLDEN).write_bytes(b"cut off")
    with pytest.raises(GoldenCorrupt) as caught:
        run.golden(run.attempts[0].started)
    assert caught.value.todo == "restore the folder, or run again"


def test_a_golden_that_has_just_been_made_again_is_not_to_be_made_again(fake_world: FakeWorld) -> None:
    new = read_golden(GOLDEN)
    GOLDEN.write_bytes(b"cut off")
    unreadable = review_against(GOLDEN, new).unreadable
    assert unreadable is not None
    assert "cut off" in unreadable
    assert "regen" not in unreadable


def test_a_pending_file_that_is_none_is_to_be_removed(fake_world: FakeWorld) -> None:
    GOLDEN.with_name("trio.jsonl.pending").write_bytes(b"cut off")
    with pytest.raises(GoldenCorrupt) as caught:
        find_pending([])
    assert caught.value.todo == "remove it, and make it again with `graphcheck golden regen MATRIX`"

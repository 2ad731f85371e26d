"""How goldens are shown: what a reader must not miss is there."""

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from graphcheck.harness.files.golden_store import golden_name, read_golden, write_golden
from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.golden.check import Checked, list_goldens
from graphcheck.harness.golden.pending import Filed, GoldenPlace, State, file_golden, find_pending
from graphcheck.harness.golden.review import Review
from graphcheck.report.golden import environment_notes, print_checked, print_diff, print_filed, print_listed
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.golden import GoldenStep
from tests.fake_world import FakeWorld, write_golden_of

GOLDEN = Path("golden/toy/trio.jsonl")


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def make(folder: str = "golden", *, writes: bool = True, versions: dict[str, str] | None = None) -> Filed:
    """The golden with another second token in prompt `one`."""
    golden = read_golden(GOLDEN)
    one, *others = golden.prompts
    steps = (one.steps[0], GoldenStep(top=((5, 3.0), (0, 2.875))), *one.steps[2:])
    changed = one.model_copy(update={"ids": (one.ids[0], 5, *one.ids[2:]), "steps": steps, "text": "after"})
    fields = golden.header.model_dump(exclude={"format", "num_prompts", "body_sha"}) | {"versions": versions or {}}
    place = GoldenPlace(Path(folder), [Path(folder)], writes=writes)
    return file_golden(golden_name("toy", "trio", "float32"), fields, [changed, *others], place)


def test_a_diff_shows_step_margins_and_both_answers_side_by_side(fake_world: FakeWorld, console: Console) -> None:
    make()
    old = read_golden(GOLDEN).prompts[0]
    print_diff(find_pending([]), console)
    text = shown(console)
    assert "golden/toy/trio.jsonl.pending: HARD: 2 same, 1 HARD" in text
    [row] = [line for line in text.splitlines() if " one " in line]
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[:5] == ["one", "HARD", "1", "2.5", "0.125"]
    assert cells[5].startswith(f"{old.ids[0]} {old.ids[1]} ")
    assert cells[6] == "after"
    assert "two" not in text, "prompts that are the same are not shown"


def test_nothing_pending_is_said(console: Console) -> None:
    print_diff([], console)
    assert shown(console) == "nothing is pending\n"


def test_regen_says_what_became_of_each_golden(fake_world: FakeWorld, console: Console) -> None:
    same = Filed(GOLDEN, State.SAME, Review(new=read_golden(GOLDEN)), False)
    print_filed([make(), same, make("other"), make("third", writes=False)], console)
    pending, kept, first, not_written, advice = shown(console).splitlines()
    assert pending.endswith("pending, HARD: 2 same, 1 HARD")
    assert kept.endswith("3 prompts, 26 tokens, no quorum; same")
    assert first.endswith("the first, nothing to review")
    assert not_written.endswith("NOT WRITTEN: in CI name a matrix or a model")
    assert advice == "next: `graphcheck golden diff`, then `graphcheck golden accept` or `reject`"


@pytest.mark.parametrize(("folder", "where"), [("golden", ""), ("my goldens", " 'my goldens'")])
def test_what_regen_says_is_next_finds_what_is_pending(
    folder: str, where: str, fake_world: FakeWorld, console: Console
) -> None:
    if where:
        shutil.copytree("golden", folder)
    made = make(folder)
    print_filed([made], console)
    assert f"next: `graphcheck golden diff{where}`, then" in shown(console)
    assert [one.path for one in find_pending([Path(folder)] if where else [])] == [made.path]


@pytest.mark.parametrize(("problems", "code"), [((), ExitCode.PASS), (("cut",), ExitCode.GOLDEN)])
def test_a_problem_is_exit_6(console: Console, problems: tuple[str, ...], code: ExitCode) -> None:
    assert print_checked(Checked(3, 4, problems, ("no model",)), console) is code
    assert [*problems, "not checked: no model"] == shown(console).splitlines()[:-1]


def test_the_list_names_users_and_what_waits(fake_world: FakeWorld, console: Console) -> None:
    make()
    print_listed(list_goldens(None, [load_matrix(str(fake_world.matrix(graph=["off"])))]), console)
    [line] = [line for line in shown(console).splitlines() if line.startswith(str(GOLDEN))]
    assert line.endswith("; 2000-01-01; used by m; a change is pending")


def test_beside_a_difference_the_packages_that_made_the_golden_are_named(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(graph=["off", "on"])
    other = {"torch": "0.0.1"}
    make(versions=other).path.replace(GOLDEN)
    run, code = fake_world.run(matrix, run_dir=Path("red"))
    assert code is ExitCode.TOKENS
    [note] = environment_notes(run)
    assert note.startswith("golden toy/trio float32 was made by other packages than ran: torch 0.0.1 -> ")
    (run.path / "golden" / "toy" / "trio.jsonl").unlink()
    assert environment_notes(run) == []
    write_golden_of(fake_world)
    golden = read_golden(GOLDEN)
    fields = golden.header.model_dump(exclude={"format", "num_prompts", "body_sha"}) | {"versions": other}
    write_golden(GOLDEN, fields, golden.prompts)
    green, code = fake_world.run(matrix, run_dir=Path("green"))
    assert (code, environment_notes(green)) == (ExitCode.PASS, [])

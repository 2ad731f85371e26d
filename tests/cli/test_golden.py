"""`graphcheck golden`: making, reviewing and accepting a golden with the real reference, and what the options mean."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from graphcheck.cli.app import app
from graphcheck.harness.files.golden_store import read_golden, write_golden
from graphcheck.report import making
from graphcheck.schema.errors import UsageError
from graphcheck.schema.golden import GoldenStep
from tests.cli.conftest import Program
from tests.cli.program import finish, start
from tests.fake_world import FakeWorld
from tests.tiny_model import make_tiny_llama

MATRIX = """\
models = ["tiny"]
suites = ["s"]
[axes]
graph = ["off", "on"]
"""
SUITE = 'name = "s"\nprompts = [{ id = "a", text = "w1 w2 w3", max_new_tokens = 6 }]\n'
GOLDEN = Path("golden/tiny/s.jsonl")


def make_matrix(folder: Path) -> None:
    """Writes the model, the suite and m.toml."""
    make_tiny_llama(folder / "tiny")
    (folder / "suites").mkdir()
    (folder / "suites" / "s.toml").write_text(SUITE)
    (folder / "m.toml").write_text(MATRIX)


def plant_a_wrong_token(path: Path) -> None:
    """A golden that is valid in form, with a wrong third token that it claims to be sure of."""
    old = read_golden(path)
    [prompt] = old.prompts
    wrong = (prompt.ids[2] + 1) % 200
    ids = (*prompt.ids[:2], wrong, *prompt.ids[3:])
    steps = (*prompt.steps[:2], GoldenStep(top=((wrong, 9.0), (0, 1.0))), *prompt.steps[3:])
    fields = old.header.model_dump(exclude={"format", "num_prompts", "body_sha"})
    write_golden(path, fields, [prompt.model_copy(update={"ids": ids, "steps": steps, "text": "a planted answer"})])


@pytest.mark.usefixtures("inline_reference")
def test_a_wrong_golden_is_found_reviewed_and_replaced(program: Program, tmp_path: Path) -> None:
    make_matrix(tmp_path)
    first = program("golden", "regen", "m.toml")
    assert first.code == 0, first.output
    assert "1 prompt, 6 tokens, 0 soft" in first.output
    assert "the first, nothing to review" in first.output
    right = GOLDEN.read_bytes()

    plant_a_wrong_token(GOLDEN)
    planted = GOLDEN.read_bytes()
    again = program("golden", "regen", "m.toml")
    assert again.code == 0, again.output
    assert f"{GOLDEN}.pending" in again.output
    assert "pending, HARD: 1 HARD" in again.output
    assert GOLDEN.read_bytes() == planted
    diff = program("golden", "diff")
    assert diff.code == 0, diff.output
    assert "a planted answer" in diff.output
    assert read_golden(GOLDEN).prompts[0].text in diff.output

    refused = program("golden", "accept", str(GOLDEN))
    assert (refused.code, refused.output.count("\n"), "HARD" in refused.output) == (2, 1, True), refused.output
    taken = program("golden", "accept", str(GOLDEN), "--hard", "--reason", "it was planted")
    assert (taken.code, "accepted" in taken.output) == (0, True), taken.output
    accepted = read_golden(GOLDEN)
    assert accepted.header.hard is not None
    assert accepted.header.hard.reason == "it was planted"
    assert GOLDEN.read_bytes().split(b"\n", 1)[1] == right.split(b"\n", 1)[1]
    ran = program("run", "matrix", "m.toml")
    assert ran.code == 0, ran.output
    checked = program("golden", "check", "--matrix", "m.toml")
    assert checked.code == 0, checked.output


@pytest.mark.usefixtures("inline_reference")
def test_processes_make_the_same_bytes_as_this_one(program: Program, tmp_path: Path) -> None:
    """A user's golden comes from processes; other tests may make theirs without."""
    elsewhere = tmp_path / "elsewhere"
    for folder in (tmp_path, elsewhere):
        make_matrix(folder)
    with start(elsewhere, "golden", "regen", "m.toml") as process:
        assert program("golden", "regen", "m.toml").code == 0
        made = finish(process, elsewhere)
    assert made.code == 0, made.output
    assert "the first, nothing to review" in made.output
    assert (elsewhere / GOLDEN).read_bytes() == GOLDEN.read_bytes()


@pytest.mark.parametrize(
    ("ci", "arguments", "writes"),
    [
        ("true", [], False),
        ("true", ["default"], True),
        ("true", ["--model", "probe"], True),
        ("", [], True),
        (None, [], True),
    ],
)
def test_in_ci_regen_writes_only_what_is_named(
    monkeypatch: pytest.MonkeyPatch, ci: str | None, arguments: list[str], writes: bool
) -> None:
    asked: list[bool] = []

    def fake(request: object, *, writes: bool, **options: Any) -> Sequence[object]:
        asked.append(writes)
        return []

    monkeypatch.setattr(making, "regen_matrix", fake)
    done = CliRunner().invoke(app, ["golden", "regen", *arguments], env={"CI": ci})
    assert (done.exit_code, asked) == (0, [writes])


@pytest.mark.parametrize("command", ["accept", "reject"])
def test_in_ci_a_decision_takes_names(fake_world: FakeWorld, command: str) -> None:
    done = CliRunner().invoke(app, ["golden", command], env={"CI": "true"})
    assert isinstance(done.exception, UsageError)
    assert done.exception.value == "CI is set"
    assert CliRunner().invoke(app, ["golden", command], env={"CI": None}).output == "nothing is pending\n"

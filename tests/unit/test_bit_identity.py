"""The benchmark that compares logits bit by bit: what it says, and what it exits with, whatever it is given."""

import runpy
import sys
from pathlib import Path

import pytest

import graphcheck
from tests.fake_world import FakeWorld

PROGRAM = Path(graphcheck.__file__).parents[1] / "benchmarks" / "bit_identity.py"


def ends_with(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(PROGRAM), run_name="__main__")
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("logits", "fault", "code", "said"),
    [
        ("digest", "none", 0, "26/26 rows of logits bit-identical over 1 cell, 2 ranks\n"),
        ("digest", "split", 1, "9/26 rows"),
        ("off", "none", 5, "no logits were recorded; run the matrix with --set logits=digest\n"),
    ],
)
def test_identical_logits_split_ones_and_none_at_all_are_told_apart(
    logits: str,
    fault: str,
    code: int,
    said: str,
    fake_world: FakeWorld,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake_world.run(fake_world.matrix(tp=[2], settings={"logits": logits, "fault": fault}), run_dir=Path("out"))
    assert ends_with(["out"], monkeypatch) == code
    assert capsys.readouterr().out.startswith(said)


@pytest.mark.parametrize(("arguments", "said"), [([], "usage: bit_identity.py"), (["nowhere"], "bit_identity.py: ")])
def test_no_folder_or_a_bad_one_is_exit_2_without_a_traceback(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends_with(arguments, monkeypatch) == 2
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert "Traceback" not in told

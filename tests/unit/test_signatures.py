"""Red runs that look like a fix's absence: recorded once, recognised again, and silence where nothing stands out."""

from dataclasses import replace
from pathlib import Path

import pytest

from graphcheck import shipped
from graphcheck.harness.files.golden_store import read_golden
from graphcheck.harness.judging.signatures import looks_like, recorded_signatures
from graphcheck.harness.records.record_signatures import main, signatures_of
from graphcheck.harness.records.run_folder import Run
from graphcheck.report.words import where_lines
from graphcheck.schema.errors import UsageError
from graphcheck.schema.signatures import Signatures
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.fake_fixes import FakeFix
from tests.fake_ablation import ablate_in, scripted
from tests.fake_world import FakeWorld

CORRUPTING = scripted("corrupt", Verdict.TOKENS, name="fix-a")
LOOPING = scripted("loop", Verdict.TOKENS, name="fix-b")
LOOPING_TOO = scripted("loop", Verdict.TOKENS, name="fix-c")


def record(world: FakeWorld, *fixes: FakeFix) -> Signatures:
    """The signatures of these fixes over graph off and on."""
    return signatures_of(ablate_in(world, world.matrix(graph=["off", "on"]), *fixes).run)


def with_fault(world: FakeWorld, fault: str, graphs: tuple[str, ...] = ("on",)) -> Run:
    """Four cells' worth of a fault, unexplained: in these graphs."""
    fix = scripted(fault, Verdict.TOKENS, name="unknown", where={"graph": graphs})
    run = ablate_in(world, world.matrix(graph=["off", "on"]), fix, run_dir=Path("unknown")).run
    trials = {a.started.attempt.cell.name: a for a in run.attempts if a.started.attempt.fixes_off}
    intact = {a.started.attempt.cell.name: a for a in run.attempts if not a.started.attempt.fixes_off}
    info = run.info.model_copy(update={"ablation": None})
    return replace(run, info=info, attempts=tuple((intact | trials).values()))


def told(run: Run, *known: Signatures) -> list[str]:
    return looks_like(run.info, run.attempts, iter(known))


def test_a_fault_that_looks_like_a_recorded_one_is_named(fake_world: FakeWorld) -> None:
    known = record(fake_world, CORRUPTING, LOOPING)
    assert known.fixes["fix-a"]["graph_on"].prompts == {"one": "corrupt@1", "two": "corrupt@1", "three": "corrupt@1"}
    assert told(with_fault(fake_world, "loop"), known) == [
        "looks like `fix-b` off: 3 of 3 wrong prompts are wrong alike, from the same token on"
    ]


@pytest.mark.parametrize(
    ("fault", "graphs"), [("drift", ("on",)), ("hang", ("on",)), ("loop", ("off", "on")), ("none", ("on",))]
)
def test_what_looks_like_none_of_them_is_not_named(fault: str, graphs: tuple[str, ...], fake_world: FakeWorld) -> None:
    known = record(fake_world, CORRUPTING, LOOPING)
    assert told(with_fault(fake_world, fault, graphs), known) == []


def test_prompts_that_both_leave_right_make_no_likeness(fake_world: FakeWorld) -> None:
    known = record(fake_world, scripted("drift", Verdict.TOKENS, name="fix-d"))
    assert told(with_fault(fake_world, "derail"), known) == [], "two of three prompts are right either way"


def test_two_fixes_whose_absence_looks_alike_are_not_told_apart(fake_world: FakeWorld) -> None:
    assert told(with_fault(fake_world, "loop"), record(fake_world, LOOPING, LOOPING_TOO)) == []


def test_signatures_of_other_goldens_say_nothing(fake_world: FakeWorld) -> None:
    known = record(fake_world, CORRUPTING, LOOPING).model_copy(update={"goldens": {"toy/trio": "0" * 64}})
    assert told(with_fault(fake_world, "loop"), known) == []


def test_an_ablation_that_proved_not_every_fix_is_not_recorded(fake_world: FakeWorld) -> None:
    with pytest.raises(UsageError, match="not an ablation that proved every fix"):
        record(fake_world, CORRUPTING, scripted("none", Verdict.TOKENS, name="useless"))


def test_the_shipped_signatures_are_of_the_shipped_goldens() -> None:
    shipped_ones = list(recorded_signatures())
    assert [one.matrix for one in shipped_ones] == ["default"]
    for one in shipped_ones:
        for name, sha in one.goldens.items():
            assert read_golden(shipped.golden_dir() / f"{name}.jsonl").header.body_sha == sha, "record them again"


def test_the_report_says_what_a_run_looks_like(fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    known = record(fake_world, CORRUPTING, LOOPING)
    folder = fake_world.path / "signatures"
    folder.mkdir()
    (folder / "m.json").write_text(known.model_dump_json())
    monkeypatch.setattr(shipped, "signatures_dir", lambda: folder)
    run = with_fault(fake_world, "corrupt")
    assert where_lines(run.info, run.attempts)[-1].startswith("looks like `fix-a` off: 3 of 3 wrong prompts")
    known_off = run.info.model_copy(update={"fixes_off": ("fix-a",)})
    assert not any("looks like" in line for line in where_lines(known_off, run.attempts)), "the title says so"
    other_off = run.info.model_copy(update={"fixes_off": ("fix-b",)})
    assert any("looks like `fix-a` off" in line for line in where_lines(other_off, run.attempts))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "usage: "),
        (["--help"], 0, "usage: "),
        (["nowhere"], 2, "record_signatures: nowhere/run.json: cannot be read"),
        (["runs"], 2, "record_signatures: "),
    ],
)
def test_what_cannot_be_recorded_is_told_without_a_traceback(
    arguments: list[str],
    code: int,
    said: str,
    fake_world: FakeWorld,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["record_signatures", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    out, err = capsys.readouterr()
    assert (out + err).startswith(said)

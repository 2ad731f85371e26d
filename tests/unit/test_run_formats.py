"""Records last: run folders of every format so far can be read, shown and judged again, even without torch."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from graphcheck.harness.records import run_formats
from graphcheck.harness.records.rejudge import contradictions, rejudged
from graphcheck.harness.records.run_folder import load_run
from graphcheck.harness.records.run_formats import UPGRADES, Fields
from graphcheck.report.formats import Format
from graphcheck.report.show import show
from graphcheck.schema.errors import RunFolderError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import RUN_FORMAT
from tests.record_run import FOLDERS

RECORDED = sorted(FOLDERS.glob("format*/*"))
VERDICTS = {
    "none": "PASS",
    "drift": "TOKENS",
    "hang": "HANG",
    "signal": "CRASH",
    "request_error": "ERROR",
    "no_replay": "VACUOUS",
    "unwitnessed": "UNWITNESSED",
}
"""Fault of a cell -> its verdict, in the matrix run of every format."""


def shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[ExitCode, str]:
    code = show(folder, Console(width=300))
    return code, capsys.readouterr().out


def test_each_format_so_far_has_its_folders() -> None:
    """After a new format: `python -m tests.record_run`."""
    numbers = range(1, RUN_FORMAT + 1)
    assert [str(path.relative_to(FOLDERS)) for path in RECORDED] == [
        f"format{number}/{kind}" for number in numbers for kind in ("ablation", "matrix")
    ]
    for path in RECORDED:
        assert path.parent.name == f"format{load_run(path).info.format}"


@pytest.mark.parametrize("folder", sorted(FOLDERS.glob("format*/matrix")), ids=lambda path: path.parent.name)
def test_a_matrix_run_of_any_format_is_read_shown_and_judged_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load_run(folder)
    verdicts = {f"tp2-graph_on-fault_{fault}": verdict for fault, verdict in VERDICTS.items()}
    assert {attempt.started.key: attempt.finished and attempt.finished.verdict for attempt in run.attempts} == verdicts
    assert {attempt.started.key: rejudged(run, attempt).verdict for attempt in run.every} == verdicts
    assert set(run.forced) == {"tp2-graph_on-fault_drift", "tp2-graph_on-fault_hang"}
    assert list(contradictions(run)) == []
    code, text = shown(folder, capsys)
    assert code is ExitCode.HANG
    assert "2/7 cells, 13/21 token-exact (fake on CPU, no CUDA graph ran), 1 unwitnessed" in text
    assert "prompt 'one', token 1, rank 0: expected 58, got 59" in text


@pytest.mark.parametrize("folder", sorted(FOLDERS.glob("format*/ablation")), ids=lambda path: path.parent.name)
def test_an_ablation_of_any_format_is_read_and_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(contradictions(load_run(folder))) == []
    code, text = shown(folder, capsys)
    assert code is ExitCode.PASS
    assert "2/2 fixes proven necessary" in text
    assert text.splitlines()[-1].startswith("exit 0: pass")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A matrix run of the oldest format, to be changed."""
    return Path(shutil.copytree(FOLDERS / "format1" / "matrix", tmp_path / "old"))


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def test_without_its_upgrade_an_old_folder_is_refused(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(UPGRADES, 1, {})
    with pytest.raises(RunFolderError, match="not a run's record"):
        load_run(old)


def test_every_kind_of_record_goes_through_the_upgrades_of_its_folder_s_format(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_run(old)
    events = expected.events("tp2-graph_on-fault_none")

    def renamed(new: str, then: str) -> Callable[[Fields], Fields]:
        return lambda fields: {then if name == new else name: value for name, value in fields.items()}

    rewrite(old / "cells.jsonl", lambda text: text.replace('"verdict":', '"result":'))
    for steps in (old / "steps").iterdir():
        rewrite(steps, lambda text: text.replace('"rank":', '"number":'))
    with pytest.raises(RunFolderError, match=r"cells.jsonl:2: not a record \(finished.verdict: this key is required\)"):
        load_run(old)
    more = {"cell": renamed("result", "verdict"), "step": renamed("number", "rank")}
    monkeypatch.setitem(UPGRADES, 1, UPGRADES[1] | more)
    again = load_run(old)
    assert again.attempts == expected.attempts
    assert again.events("tp2-graph_on-fault_none") == events


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: record | {"facts": [1]},
        lambda record: record | {"backend": "tape"},
        lambda record: record | {"facts": record["facts"] | {"evidence": {"0": {}}}},
    ],
)
def test_a_damaged_record_of_an_old_format_is_told_by_its_line(
    tmp_path: Path, spoil: Callable[[Fields], Fields]
) -> None:
    folder = Path(shutil.copytree(FOLDERS / "format2" / "matrix", tmp_path / "old"))
    lines = (folder / "cells.jsonl").read_text(encoding="utf-8").splitlines()
    lines[1] = json.dumps(spoil(json.loads(lines[1])))
    (folder / "cells.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"cells.jsonl:2: not a record \(not of format 2: "):
        load_run(folder)


def test_a_forced_pass_s_verdict_that_was_changed_is_told(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDERS / f"format{RUN_FORMAT}" / "matrix", tmp_path / "new"))
    changed = '"key":"tp2-graph_on-fault_drift.forced","verdict":"{}"'
    rewrite(folder / "cells.jsonl", lambda text: text.replace(changed.format("TOKENS"), changed.format("HANG")))
    assert list(contradictions(load_run(folder))) == [
        "tp2-graph_on-fault_drift.forced: recorded as HANG, but what is recorded of it says TOKENS"
    ]


def test_formats_are_upgraded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(number: int) -> Callable[[Fields], Fields]:
        return lambda fields: {"went": [*fields["went"], number]}

    monkeypatch.setattr(run_formats, "RUN_FORMAT", 4)
    monkeypatch.setattr(run_formats, "UPGRADES", {1: {"cell": add(1)}, 2: {"step": add(2)}, 3: {"cell": add(3)}})
    assert run_formats.upgraded({"went": []}, "cell", 1) == {"went": [1, 3]}
    assert run_formats.upgraded({"went": []}, "cell", 2) == {"went": [3]}
    assert run_formats.upgraded({"went": []}, "cell", 4) == {"went": []}


@pytest.mark.parametrize("number", [0, RUN_FORMAT + 1, "1", 1.0, None])
def test_a_format_that_nobody_can_read_is_refused(old: Path, number: object) -> None:
    rewrite(old / "run.json", lambda text: json.dumps(json.loads(text) | {"format": number}))
    with pytest.raises(RunFolderError, match=rf"this version reads formats 1 to {RUN_FORMAT}; use the version"):
        load_run(old)


REPORT_ALL = """\
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "elftools"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from graphcheck.__main__ import main

for folder in sys.argv[1:]:
    for format_ in ("console", "markdown", "html", "junit", "json"):
        sys.argv[1:] = ["report", folder, "--format", format_]
        try:
            main()
        except SystemExit as ended:
            print("ended", ended.code)
"""


def test_report_works_where_torch_and_transformers_are_absent() -> None:
    folders = [str(path) for path in RECORDED if path.parent.name == f"format{RUN_FORMAT}"]
    program = [sys.executable, "-c", REPORT_ALL, *folders]
    reported = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in reported.stderr
    ended = [line for line in reported.stdout.splitlines() if line.startswith("ended")]
    assert ended == ["ended 0"] * len(Format) + ["ended 3"] * len(Format)

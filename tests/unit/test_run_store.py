"""The run folder: what was written comes back, half of it included, and every verdict can be drawn again from it."""

import errno
import itertools
import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.records import run_store
from graphcheck.harness.records.rejudge import rejudged
from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.harness.records.run_store import new_run_folder
from graphcheck.harness.running.execute import Surroundings
from graphcheck.harness.running.interrupt import Interrupted
from graphcheck.harness.running.observe import Observer
from graphcheck.harness.running.run_matrix import run_matrix
from graphcheck.report.show import show
from graphcheck.report.terminal import Terminal
from graphcheck.schema.errors import GoldenCorrupt, RunFolderError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import AttemptFinished, AttemptStarted
from graphcheck.schema.suite import Workload
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.base import Launch
from graphcheck.targets.fake import FakeSession, FakeTarget
from graphcheck.targets.fake_faults import FAULTS
from tests.fake_loading import LoadingTarget
from tests.fake_world import FakeWorld, write_golden_of

NOW = datetime(2030, 1, 2, 3, 4, 5)


def finished(run: Run) -> list[AttemptFinished]:
    return [attempt.finished for attempt in run.attempts if attempt.finished is not None]


def edit_steps(run: Run, old: str, new: str) -> None:
    (path,) = (run.path / "steps").iterdir()
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_run_folders_are_named_by_time_and_never_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [new_run_folder(None, NOW).as_posix() for _ in range(3)]
    assert names == ["runs/20300102-030405", "runs/20300102-030405-2", "runs/20300102-030405-3"]


def test_a_wanted_folder_must_be_new_or_empty(tmp_path: Path) -> None:
    assert new_run_folder(tmp_path / "deep" / "new", NOW).is_dir()
    empty = tmp_path / "deep" / "empty"
    empty.mkdir()
    assert new_run_folder(empty, NOW) == empty
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunFolderError, match="empty folder"):
        new_run_folder(tmp_path, NOW)
    with pytest.raises(RunFolderError, match="cannot be used"):
        new_run_folder(tmp_path / "notes.txt", NOW)


def test_two_runs_that_find_a_folder_empty_at_once_do_not_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert new_run_folder(tmp_path, NOW) == tmp_path
    monkeypatch.setattr(Path, "iterdir", lambda path: iter(()))
    with pytest.raises(RunFolderError, match="empty folder"):
        new_run_folder(tmp_path, NOW)


def test_the_record_says_what_ran_and_what_changed_it(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(
        fake_world.matrix(graph=["on"]),
        fixes_off=("sync",),
        ignore_eos=True,
        lanes=2,
        settings=("buckets=1,2",),
        run_dir=Path("here"),
        command=("graphcheck", "run", "matrix"),
    )
    info = run.info
    assert run.path == Path("here")
    assert info.overrides == {"ignore_eos": True, "lanes": 2, "buckets": "1,2"}
    assert (info.fixes_off, info.command, info.exit_code) == (("sync",), ("graphcheck", "run", "matrix"), 0)
    assert info.ended is not None
    assert info.goldens.keys() == {"toy/trio"}
    assert info.environment.keys() >= {"python", "torch", "torch_cuda", "nvidia_devices"}
    started = run.attempts[0].started
    assert (started.settings["lanes"], started.settings["buckets"]) == (2, "1,2")
    assert started.workload is not None
    assert {request.stop_ids for request in started.workload.requests} == {()}


def test_every_record_is_on_disk_before_the_next_thing_happens(fake_world: FakeWorld) -> None:
    seen: list[tuple[str, int]] = []

    class Looking(Observer):
        def started(self, record: AttemptStarted | AttemptFinished) -> None:
            (folder,) = Path("runs").iterdir()
            lines = (folder / "cells.jsonl").read_text(encoding="utf-8").splitlines()
            seen.append((json.loads(lines[-1])["record"], len(lines)))

        finished = started

    run_matrix(RunRequest(matrix=str(fake_world.matrix(graph=["off", "on"]))), Looking())
    assert seen == [("started", 1), ("finished", 2), ("started", 3), ("finished", 4)]


def test_steps_and_what_was_loaded_are_on_disk_before_the_verdict_that_rests_on_them(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def fsync(file: int) -> None:
        path = Path(f"/proc/self/fd/{file}").readlink()
        synced.append(f"{path.parent.name}/{path.name} {path.stat().st_size}")

    monkeypatch.setattr(run_store.os, "fsync", fsync)
    request = RunRequest(matrix=str(fake_world.matrix(tp=[1])), run_dir=Path("out"))
    run_matrix(request, surroundings=Surroundings(load_target=lambda name: LoadingTarget(fake_world)))
    (loaded,) = Path("out/loaded").iterdir()
    wanted = [f"{path.parent.name}/{path.name} {path.stat().st_size}" for path in (loaded, Path("out/steps/tp1.jsonl"))]
    verdict = f"out/cells.jsonl {Path('out/cells.jsonl').stat().st_size}"
    assert [entry for entry in synced if entry in (*wanted, verdict)] == [*wanted, verdict]


def test_every_verdict_can_be_drawn_again_from_the_folder_alone(fake_world: FakeWorld) -> None:
    run, code = fake_world.run(fake_world.matrix(tp=[1, 2], graph=["off", "on"], fault=list(FAULTS)))
    fake_world.golden_file.unlink()
    again = load_run(run.path)
    assert [rejudged(again, attempt) for attempt in again.every] == finished(run)
    assert load_run(run.path).info.exit_code == code


def test_drawing_verdicts_again_sees_a_step_that_was_changed(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    edit_steps(run, '"finite":[true]', '"finite":[false]')
    assert [rejudged(run, attempt).verdict for attempt in run.every] == [Verdict.TOKENS]


def test_drawing_verdicts_again_needs_the_golden_as_it_was(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    copy = run.path / "golden" / "toy" / "trio.jsonl"
    assert copy.read_bytes() == fake_world.golden_file.read_bytes()
    copy.write_bytes(copy.read_bytes().replace(b"58", b"59", 1))
    with pytest.raises(GoldenCorrupt):
        [rejudged(run, attempt) for attempt in run.every]


def test_a_report_notes_a_verdict_that_its_own_folder_does_not_bear_out(
    fake_world: FakeWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    assert show(run.path, Terminal()) is ExitCode.PASS
    assert "recorded as" not in capsys.readouterr().out
    edit_steps(run, '"finite":[true]', '"finite":[false]')
    assert show(run.path, Terminal()) is ExitCode.USAGE
    note = "graph_on: recorded as PASS, but what is recorded of it says TOKENS"
    assert capsys.readouterr().out.splitlines()[0] == note


@pytest.mark.parametrize("damaged", ["golden/toy/trio.jsonl", "steps/graph_on.jsonl"])
def test_a_report_of_a_damaged_folder_shows_the_record_and_says_what_is_damaged(
    damaged: str, fake_world: FakeWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    (run.path / damaged).write_bytes(b"{}\n")
    assert show(run.path, Terminal()) is ExitCode.USAGE
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"graph_on: its verdict PASS cannot be drawn again: {run.path / damaged}")


def test_a_golden_that_was_replaced_whole_is_not_the_one_the_run_was_judged_by(
    fake_world: FakeWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    write_golden_of(fake_world, lambda prompt, answer: (answer[0] + 1, *answer[1:]))
    copy = run.path / "golden" / "toy" / "trio.jsonl"
    copy.write_bytes(fake_world.golden_file.read_bytes())
    assert show(run.path, Terminal()) is ExitCode.USAGE
    assert f"{copy}: not the golden that the run was judged by" in capsys.readouterr().out


def test_a_record_that_claims_another_backend_than_its_evidence_is_contradicted(
    fake_world: FakeWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    lines = (run.path / "cells.jsonl").read_text().splitlines()
    record = json.loads(lines[-1])
    record["backend"]["graph"] = "cuda"
    (run.path / "cells.jsonl").write_text("\n".join([*lines[:-1], json.dumps(record)]) + "\n")
    assert show(run.path, Terminal()) is ExitCode.USAGE
    assert capsys.readouterr().out.startswith("graph_on: what it is said to have run on")


def test_cells_that_never_ran_keep_their_verdict(fake_world: FakeWorld) -> None:
    fake_world.golden_file.unlink()
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    assert [rejudged(run, attempt).verdict for attempt in run.every] == [Verdict.MISSING]


def test_a_last_line_that_was_cut_off_is_left_out_and_noted(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2]))
    cells = run.path / "cells.jsonl"
    cells.write_bytes(cells.read_bytes()[:-20])
    again = load_run(run.path)
    assert [attempt.finished is not None for attempt in again.attempts] == [True, False]
    assert again.notes == ("cells.jsonl:4 is cut off and left out: the run was ended from outside",)


def test_a_damaged_line_in_the_middle_is_refused_with_its_place(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(tp=[1, 2]))
    cells = run.path / "cells.jsonl"
    lines = cells.read_bytes().splitlines(keepends=True)
    cells.write_bytes(lines[0] + b'{"record": "finished"}\n' + b"".join(lines[2:]))
    with pytest.raises(RunFolderError, match=r"cells\.jsonl:2: not a record \(finished\.key: this key is required\)"):
        load_run(run.path)


@pytest.mark.parametrize(
    ("content", "rule"),
    [(None, "cannot be read"), ("{", "not JSON"), ("{}", "format None"), ('{"format": 99}', "format 99")],
)
def test_a_folder_that_is_no_run_is_refused(content: str | None, rule: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunFolderError, match=rule):
        load_run(tmp_path)


@pytest.mark.parametrize("code", [ExitCode.INTERRUPTED, ExitCode.TERMINATED])
def test_an_interrupt_kills_the_session_and_closes_the_records(code: ExitCode, fake_world: FakeWorld) -> None:
    sessions: list[FakeSession] = []

    class RememberingTarget(FakeTarget):
        def start(self, launch: Launch, workload: Workload, out_dir: Path) -> FakeSession:
            sessions.append(super().start(launch, workload, out_dir))
            return sessions[-1]

    def interrupt(seconds: float) -> None:
        raise Interrupted(code)

    matrix = fake_world.matrix(fault=["none", "hang", "drift"])
    target = RememberingTarget(interrupt)
    request = RunRequest(matrix=str(matrix))
    result = run_matrix(request, surroundings=Surroundings(load_target=lambda name: target))
    run = load_run(result.path)
    assert (result.exit_code, run.info.exit_code) == (code, code)
    assert [attempt.finished is not None for attempt in run.attempts] == [True, False]
    assert len(run.info.planned) == 3
    assert [session.killed for session in sessions] == [True, True]


def test_a_clock_on_the_wall_that_jumps_changes_no_verdict_and_no_duration(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Jumping(datetime):
        hours = itertools.cycle([0, 30, -30])

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime(2030, 1, 2, tzinfo=tz) + timedelta(hours=next(cls.hours))

    steady, _ = fake_world.run(fake_world.matrix(tp=[1, 2], fault=["none", "hang"]))
    monkeypatch.setattr(run_store, "datetime", Jumping)
    jumped, _ = fake_world.run(fake_world.matrix(tp=[1, 2], fault=["none", "hang"]))
    assert [one.verdict for one in finished(jumped)] == [Verdict.PASS, Verdict.HANG] * 2
    for before, after in zip(finished(steady), finished(jumped), strict=True):
        assert after.facts.seconds == pytest.approx(before.facts.seconds, abs=0.1)


def test_an_internal_error_is_recorded(fake_world: FakeWorld) -> None:
    class BrokenTarget(FakeTarget):
        def start(self, launch: Launch, workload: Workload, out_dir: Path) -> FakeSession:
            raise AssertionError("no such case")

    request = RunRequest(matrix=str(fake_world.matrix(graph=["on"])), run_dir=Path("out"))
    with pytest.raises(AssertionError, match="no such case"):
        run_matrix(request, surroundings=Surroundings(load_target=lambda name: BrokenTarget()))
    run = load_run(Path("out"))
    assert (run.info.exit_code, run.info.ended is None) == (ExitCode.INTERNAL, False)
    assert show(Path("out"), Terminal()) is ExitCode.INTERNAL


def test_a_target_that_is_out_of_disk_costs_the_attempt_alone(fake_world: FakeWorld) -> None:
    class FullTarget(FakeTarget):
        def start(self, launch: Launch, workload: Workload, out_dir: Path) -> FakeSession:
            if launch.settings["graph"] == "off":
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().start(launch, workload, out_dir)

    request = RunRequest(matrix=str(fake_world.matrix(graph=["off", "on"])), run_dir=Path("out"))
    result = run_matrix(request, surroundings=Surroundings(load_target=lambda name: FullTarget()))
    assert result.exit_code is ExitCode.CRASH
    full, other = finished(load_run(Path("out")))
    assert (full.verdict, other.verdict) == (Verdict.CRASH, Verdict.PASS)
    assert "No space left on device" in full.reason


def test_a_run_killed_in_mid_attempt_can_be_read(fake_world: FakeWorld) -> None:
    matrix = fake_world.matrix(fault=["none", "spin"])
    command = [sys.executable, "-m", "graphcheck", "run", "matrix", str(matrix), "--run-dir", "killed"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("fault_none  PASS")
        process.kill()
    run = load_run(Path("killed"))
    assert finished(run)[0].key == "fault_none"
    assert run.info.ended is None

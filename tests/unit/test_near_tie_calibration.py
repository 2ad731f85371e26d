"""`golden calibrate`: what is measured, what is refused, and the file that holds it."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from graphcheck import shipped
from graphcheck.harness.files.calibration_store import find_calibrations, read_calibrations
from graphcheck.harness.files.golden_store import read_golden
from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.golden.calibrate import calibrate
from graphcheck.harness.golden.check import check_goldens, list_goldens
from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.running.execute import Surroundings
from graphcheck.schema.capabilities import AxisSpec, Capabilities
from graphcheck.schema.errors import (
    GoldenCorrupt,
    GoldenDisputed,
    GoldenMissing,
    GoldenStale,
    ProvenanceError,
    UsageError,
)
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.provenance import Loaded
from graphcheck.targets.fake import FakeTarget
from tests.failing_disk import make_unreadable
from tests.fake_loading import GOOD, LoadingTarget
from tests.fake_world import FakeWorld
from tests.in_process import make_call
from tests.near_ties import MARGIN_ULP, calibrated, make_unsure

FILE = Path("golden/toy/trio.calibration")


@pytest.fixture
def matrix(fake_world: FakeWorld) -> Path:
    """Four cells of a good engine that picks the other of two ids that are all but level."""
    make_unsure(fake_world)
    return fake_world.matrix(tp=[1, 2], graph=["off", "on"], settings={"fault": "drift"})


def test_the_bound_is_the_farthest_that_a_gap_moved_over_all_cells_and_repeats(
    matrix: Path, fake_world: FakeWorld
) -> None:
    (one,) = calibrated(fake_world, matrix, repeats=3)
    (calibration,) = one.calibrations
    assert (one.path, one.written) == (FILE, True)
    assert calibration.bound == MARGIN_ULP, "the two ids came out level, a margin apart from the golden's"
    assert (calibration.num_near_ties, calibration.num_steps) == (4 * 3, 4 * 3 * 26)
    assert (calibration.made_for, calibration.repeats) == ({"target": "fake", "device": "cpu"}, 3)
    assert calibration.cells == ("tp1-graph_off", "tp1-graph_on", "tp2-graph_off", "tp2-graph_on")
    assert read_calibrations(FILE).calibrations == (calibration,)


def test_measured_again_it_is_the_same_bytes(matrix: Path, fake_world: FakeWorld) -> None:
    calibrated(fake_world, matrix)
    before = FILE.read_bytes()
    (again,) = calibrated(fake_world, matrix)
    assert (FILE.read_bytes(), again.written) == (before, False)


def test_what_was_measured_for_other_arithmetic_is_kept(matrix: Path, fake_world: FakeWorld) -> None:
    calibrated(fake_world, matrix)
    on_gpus = fake_world.matrix(tp=[1], graph=["on"], settings={"fault": "drift", "device": "cuda"})
    gpus = replace(fake_world.surroundings(1, gives_forced=True))
    calibrate(RunRequest(matrix=str(on_gpus)), 1, surroundings=gpus)
    assert [one.made_for["device"] for one in read_calibrations(FILE).calibrations] == ["cpu", "cuda"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"fault": "derail"}, "the golden is sure of it, with a margin of 5.24e+06 ULP"),
        ({"fault": "repeat"}, "cell graph_on: TOKENS"),
        ({"fault": "hang"}, "cell graph_on: HANG"),
        ({"fault": "no_replay"}, "cell graph_on: VACUOUS"),
        ({"fault": "breach"}, "cell graph_on: ERROR"),
    ],
)
def test_an_engine_that_is_not_known_to_be_good_is_not_measured(
    settings: dict[str, object], says: str, fake_world: FakeWorld
) -> None:
    make_unsure(fake_world)
    with pytest.raises(GoldenDisputed) as caught:
        calibrated(fake_world, fake_world.matrix(graph=["on"], settings=settings))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not FILE.exists()


def test_a_step_that_the_golden_is_sure_of_is_no_noise_however_small_its_margin(fake_world: FakeWorld) -> None:
    make_unsure(fake_world, soft=False)
    with pytest.raises(GoldenDisputed, match="the golden is sure of it"):
        calibrated(fake_world, fake_world.matrix(graph=["on"], settings={"fault": "drift"}))


def test_without_a_golden_nothing_is_measured(fake_world: FakeWorld) -> None:
    fake_world.golden_file.unlink()
    with pytest.raises(GoldenMissing):
        calibrated(fake_world, fake_world.matrix(graph=["on"]))


class TellsNumerics(FakeTarget):
    """A target that says how it adds up, as an engine with bit-exact arithmetic can."""

    def describe(self) -> Capabilities:
        numerics = AxisSpec(name="numerics", kind="str", default="invariant", choices=("invariant", "fast"))
        known = super().describe()
        return known.model_copy(update={"axes": (*known.axes, numerics)})


def told_numerics(world: FakeWorld) -> Surroundings:
    return replace(world.surroundings(), load_target=lambda name: TellsNumerics(world.clock.sleep, gives_forced=True))


def test_no_bound_is_measured_for_bit_exact_arithmetic_which_would_excuse_its_bugs(fake_world: FakeWorld) -> None:
    make_unsure(fake_world)
    matrix = fake_world.matrix(graph=["on"], settings={"fault": "drift"})
    with pytest.raises(UsageError, match="numerics = invariant: this arithmetic is bit-exact") as caught:
        calibrate(RunRequest(matrix=str(matrix)), 1, surroundings=told_numerics(fake_world))
    assert caught.value.exit_code is ExitCode.USAGE
    assert not FILE.exists()


def test_of_a_matrix_with_bit_exact_cells_only_the_others_are_measured(fake_world: FakeWorld) -> None:
    make_unsure(fake_world)
    matrix = fake_world.matrix(numerics=["invariant", "fast"], settings={"fault": "drift"})
    (one,) = calibrate(RunRequest(matrix=str(matrix)), 1, surroundings=told_numerics(fake_world))
    assert [c.made_for["numerics"] for c in one.calibrations] == ["fast"]
    assert [c.cells for c in one.calibrations] == [("numerics_fast",)]


def test_golden_calibrate_alone_refuses_the_default_matrix(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = make_call(monkeypatch, capsys)("golden", "calibrate")
    ended.assert_one_line(2, "matrix default: dtype = float32, numerics = invariant: ")
    assert not Path("golden/probe").exists()


def test_a_setting_that_was_typed_is_measured_and_one_that_cannot_be_is_named(fake_world: FakeWorld) -> None:
    make_unsure(fake_world)
    matrix = fake_world.matrix(graph=["on"], settings={"fault": "drift"})
    (one,) = calibrated(fake_world, matrix, settings=("lanes=2",))
    assert one.calibrations[0].command == "graphcheck golden calibrate m --set lanes=2"
    for setting, says in (("typo=1", "typo = 1: target fake has no such"), ("logits=digest", "--set logits=digest: ")):
        with pytest.raises(UsageError, match=says):
            calibrated(fake_world, matrix, settings=(setting,))


def test_a_cell_without_devices_is_refused(fake_world: FakeWorld) -> None:
    with pytest.raises(UsageError, match="cell tp2: needs 2 cuda devices"):
        calibrated(fake_world, fake_world.matrix(tp=[2], settings={"device": "cuda"}))


class WithoutTop(FakeTarget):
    """A target that does not report its logits."""

    def describe(self) -> Capabilities:
        return super().describe().model_copy(update={"gives_top_logits": False})


def test_an_engine_whose_ranks_run_different_code_is_not_measured(fake_world: FakeWorld) -> None:
    def loads(cell: str, rank: int) -> Loaded:
        return Loaded(sources={"engine.step": "9" * 64}) if rank else GOOD

    surroundings = replace(fake_world.surroundings(), load_target=lambda name: LoadingTarget(fake_world, loads))
    with pytest.raises(ProvenanceError, match=r"rank 1 of tp2\.forced: module engine\.step has sha256 9999"):
        calibrate(RunRequest(matrix=str(fake_world.matrix(tp=[2]))), 1, surroundings=surroundings)
    assert not FILE.exists()


def test_the_reference_is_refused_for_what_it_lacks_and_not_for_a_setting_that_nobody_typed(
    fake_world: FakeWorld,
) -> None:
    matrix = fake_world.matrix(attention=["eager"])
    matrix.write_text(matrix.read_text().replace('"fake"', '"transformers"'))
    with pytest.raises(UsageError) as caught:
        calibrate(RunRequest(matrix=str(matrix)), 1)
    assert str(caught.value).startswith("target transformers: it cannot report its best logits when asked; ")


@pytest.mark.parametrize(
    ("target", "says"),
    [(FakeTarget(), "cannot be fed"), (WithoutTop(gives_forced=True), "cannot report its best logits")],
)
def test_a_target_that_cannot_be_measured_says_why(target: FakeTarget, says: str, fake_world: FakeWorld) -> None:
    surroundings = replace(fake_world.surroundings(), load_target=lambda name: target)
    with pytest.raises(UsageError, match=says):
        calibrate(RunRequest(matrix=str(fake_world.matrix(graph=["on"]))), 1, surroundings=surroundings)


def rewrite(change: Callable[[bytes], bytes]) -> Callable[[], object]:
    return lambda: FILE.write_bytes(change(FILE.read_bytes()))


def reasons_and_problems(world: FakeWorld, matrix: Path, golden_dir: Path | None = None) -> tuple[set[str], set[str]]:
    """Why a run of `matrix` starts none of its cells, and what `golden check` says of its model's goldens."""
    run, code = world.run(matrix, gives_forced=True, golden_dir=golden_dir)
    reasons = {one.finished.reason for one in run.attempts if one.finished and not one.finished.verdict.is_green}
    assert code is (ExitCode.GOLDEN if reasons else ExitCode.PASS)
    return reasons, {line for line in check_goldens(golden_dir, [load_matrix(str(matrix))]).problems if "toy" in line}


@pytest.fixture
def calibrated_shipped(matrix: Path, fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The golden and its calibration are shipped as well."""
    calibrated(fake_world, matrix)
    folder = fake_world.path / "shipped"
    shutil.copytree(fake_world.golden_dir, folder)
    monkeypatch.setattr(shipped, "golden_dir", lambda: folder)
    return folder


@pytest.mark.usefixtures("calibrated_shipped")
def test_a_golden_of_one_s_own_with_its_own_calibration_is_in_order(matrix: Path, fake_world: FakeWorld) -> None:
    make_unsure(fake_world, margin=0.125)
    calibrated(fake_world, matrix)
    assert reasons_and_problems(fake_world, matrix) == (set(), set())


def test_a_calibration_of_one_s_own_for_a_shipped_golden_is_in_order(
    matrix: Path, fake_world: FakeWorld, calibrated_shipped: Path
) -> None:
    fake_world.golden_file.unlink()
    (calibrated_shipped / FILE.relative_to("golden")).unlink()
    assert reasons_and_problems(fake_world, matrix) == (set(), set())


def test_a_golden_of_one_s_own_of_which_only_others_calibrations_are_left_is_told_as_a_run_does(
    matrix: Path, fake_world: FakeWorld, calibrated_shipped: Path
) -> None:
    make_unsure(fake_world, margin=0.125)
    for stale, remove in ((FILE, FILE.unlink), (calibrated_shipped / "toy/trio.calibration", str)):
        reasons, problems = reasons_and_problems(fake_world, matrix)
        assert reasons == problems
        (reason,) = reasons
        assert reason.startswith(f"{stale}: measured against another golden of this name")
        remove()


def test_what_lies_beside_a_matrix_is_checked_as_a_run_would(matrix: Path, fake_world: FakeWorld) -> None:
    Path("mine").mkdir()
    FILE.write_bytes(b"junk\n")
    waiting = FILE.with_name("trio.jsonl.pending")
    waiting.write_bytes(b"")
    reasons, problems = reasons_and_problems(fake_world, matrix, Path("mine"))
    (reason,) = reasons
    (other,) = problems - reasons
    assert "golden/toy/trio.calibration: not a calibration" in reason
    assert f"{waiting}: not reviewed" in other
    listed = [
        one.path for one in list_goldens(Path("mine"), [load_matrix(str(matrix))]) if one.path.parent.name == "toy"
    ]
    assert listed == [fake_world.golden_file]


def test_a_calibration_that_cannot_be_read_is_exit_6_and_no_internal_error(matrix: Path, fake_world: FakeWorld) -> None:
    make_unreadable(FILE)
    reasons, problems = reasons_and_problems(fake_world, matrix)
    assert reasons == problems
    (reason,) = reasons
    assert reason == f"{FILE}: cannot be read (Input/output error); check the path and its permissions"


def with_header(**fields: object) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        line, body = content.split(b"\n", 1)
        return json.dumps(json.loads(line) | fields).encode() + b"\n" + body

    return change


def twice(content: bytes) -> bytes:
    line, body = content.split(b"\n", 1)
    return with_header(body_sha=hashlib.sha256(body + body).hexdigest())(line + b"\n" + body + body)


FAULTS: dict[str, tuple[Callable[[bytes], bytes], type[Exception], str]] = {
    "a wider bound": (lambda c: c.replace(b'"bound":', b'"bound":9'), GoldenCorrupt, "body sha256"),
    "cut": (lambda c: c[:-3], GoldenCorrupt, "cut off"),
    "empty": (lambda c: b"", GoldenCorrupt, "cut off"),
    "no JSON": (lambda c: b"nothing\n", GoldenCorrupt, "not a calibration"),
    "a later version": (with_header(format=2), GoldenCorrupt, "format 2: this version reads format 1"),
    "CR LF": (lambda c: c.replace(b"\n", b"\r\n"), GoldenCorrupt, "CR LF line ends"),
    "conflict markers": (lambda c: b"<<<<<<< ours\n" + c, GoldenCorrupt, "merge conflict"),
    "another suite's": (with_header(suite="duo"), GoldenCorrupt, "it holds that of toy/duo"),
    "another golden's": (with_header(golden_sha="0" * 64), GoldenStale, "another golden of this name"),
    "a line twice": (twice, GoldenCorrupt, "2 calibrations: line 1 says 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_calibration_is_exit_6_and_one_line(fault: str, matrix: Path, fake_world: FakeWorld) -> None:
    calibrated(fake_world, matrix)
    change, error, says = FAULTS[fault]
    rewrite(change)()
    with pytest.raises(error, match=says):
        find_calibrations(read_golden(fake_world.golden_file).header, [fake_world.golden_dir])
    run, code = fake_world.run(matrix, gives_forced=True)
    reasons = {attempt.finished.reason for attempt in run.attempts if attempt.finished}
    assert code is ExitCode.GOLDEN
    (reason,) = reasons
    assert says in reason
    assert "\n" not in reason
    assert reason in check_goldens(None, [load_matrix(str(matrix))]).problems


def test_a_stale_or_damaged_calibration_can_be_measured_again(matrix: Path, fake_world: FakeWorld) -> None:
    calibrated(fake_world, matrix)
    right = FILE.read_bytes()
    rewrite(with_header(golden_sha="0" * 64))()
    calibrated(fake_world, matrix)
    assert FILE.read_bytes() == right
    rewrite(lambda content: content[:-3])()
    calibrated(fake_world, matrix)
    assert FILE.read_bytes() == right


def test_check_and_list_know_calibrations(matrix: Path, fake_world: FakeWorld) -> None:
    calibrated(fake_world, matrix)
    loaded = [load_matrix(str(matrix))]
    listed = next(one for one in list_goldens(None, loaded) if one.path == FILE.with_suffix(".jsonl"))
    assert listed.calibrations == read_calibrations(FILE).calibrations
    assert not [line for line in check_goldens(None, loaded).problems if "toy" in line]
    lost = FILE.with_name("lost.calibration")
    lost.write_bytes(FILE.read_bytes())
    assert [line for line in check_goldens(None, loaded).problems if "toy" in line] == [
        f"{lost}: no golden of that name is in any golden folder; remove it"
    ]

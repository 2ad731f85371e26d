"""GPU memory between cells: what an attempt leaves is a LEAK, and a GPU that is still held costs the cells there."""

import io
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from graphcheck.harness.golden.calibrate import calibrate
from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.records.rejudge import rejudged
from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.harness.running.device_memory import SETTLE_SECONDS, TOLERANCE_MIB, DeviceMemory
from graphcheck.harness.running.execute import Surroundings
from graphcheck.harness.running.run_matrix import run_matrix
from graphcheck.harness.running.supervise import Clock
from graphcheck.report.show import show
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import GoldenDisputed
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import AttemptStarted
from graphcheck.schema.suite import Workload
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.base import Launch
from graphcheck.targets.fake import FakeSession, FakeTarget
from tests.fake_world import FakeWorld, VirtualClock

FOR_EVER = float("inf")


@dataclass
class Gpus:
    """Two GPUs that somebody else uses a little of, and a target whose attempts take more.

    `leaks`: attempt key -> GPU, MiB that stay in use, and for how many seconds from its start.
    """

    clock: VirtualClock
    leaks: Mapping[str, tuple[int, int, float]]
    readable: bool = True
    _held: list[tuple[int, int, float]] = field(default_factory=list)

    def read(self) -> dict[int, int] | None:
        held = [(gpu, mib) for gpu, mib, until in self._held if self.clock.now() < until]
        return {gpu: 20 + sum(m for g, m in held if g == gpu) for gpu in (0, 1)} if self.readable else None

    def start(self, key: str) -> None:
        if key in self.leaks:
            gpu, mib, seconds = self.leaks[key]
            self._held.append((gpu, mib, self.clock.now() + seconds))


class LeakyTarget(FakeTarget):
    def __init__(self, gpus: Gpus, gives_forced: bool) -> None:
        super().__init__(gpus.clock.sleep, gives_forced=gives_forced)
        self._gpus = gpus

    def start(self, launch: Launch, workload: Workload, out_dir: Path) -> FakeSession:
        self._gpus.start(launch.attempt.key)
        return super().start(launch, workload, out_dir)


def run(
    world: FakeWorld,
    matrix: Path,
    leaks: Mapping[str, tuple[int, int, float]],
    *,
    readable: bool = True,
    gives_forced: bool = False,
    **request: Any,
) -> tuple[Run, ExitCode]:
    """Runs where two GPUs are; `request` are fields of RunRequest."""
    around = surroundings(Gpus(world.clock, leaks, readable), gives_forced=gives_forced)
    result = run_matrix(RunRequest(matrix=str(matrix), **request), surroundings=around)
    return load_run(result.path), result.exit_code


def surroundings(gpus: Gpus, *, gives_forced: bool) -> Surroundings:
    return Surroundings(
        load_target=lambda name: LeakyTarget(gpus, gives_forced),
        count_devices=lambda kind: 2,
        clock=Clock(gpus.clock.now, gpus.clock.sleep),
        device_memory=gpus.read,
    )


def on_gpus(world: FakeWorld, **axes: list[object]) -> Path:
    return world.matrix(settings={"device": "cuda"}, **axes)


def outcomes(run: Run) -> list[tuple[Verdict, dict[int, int] | None]]:
    finished = [attempt.finished for attempt in run.attempts]
    return [(one.verdict, one.facts.leaked) for one in finished if one is not None]


def reason(run: Run, number: int) -> str:
    finished = run.attempts[number].finished
    assert finished is not None
    return finished.reason


def test_memory_that_an_attempt_leaves_is_a_leak_and_exit_4(fake_world: FakeWorld) -> None:
    found, code = run(fake_world, on_gpus(fake_world, tp=[2, 1]), {"tp2": (1, 812, FOR_EVER)})
    assert outcomes(found) == [(Verdict.LEAK, {1: 812}), (Verdict.PASS, {})], "TP 1 does not use GPU 1"
    assert reason(found, 0).startswith("812 MiB on GPU 1 are still in use, although all ranks are gone")
    assert code is ExitCode.CRASH
    assert [rejudged(found, attempt).verdict for attempt in found.every] == [Verdict.LEAK, Verdict.PASS]


def test_a_cell_on_a_gpu_that_is_still_held_is_skipped_and_says_by_whom(fake_world: FakeWorld) -> None:
    matrix = on_gpus(fake_world, tp=[1, 2], graph=["off", "on"])
    found, code = run(fake_world, matrix, {"tp1-graph_off": (0, 300, FOR_EVER)})
    assert [verdict for verdict, _ in outcomes(found)] == [Verdict.LEAK, *[Verdict.SKIPPED] * 3]
    assert reason(found, 3).startswith("GPU 0 still holds 300 MiB that tp1-graph_off left, unless another program")
    assert code is ExitCode.CRASH


@pytest.mark.parametrize(
    ("fault", "verdict", "code"), [("none", Verdict.LEAK, ExitCode.CRASH), ("hang", Verdict.HANG, ExitCode.HANG)]
)
def test_what_a_repeat_showed_is_not_hidden_by_the_next_that_its_memory_keeps_from_running(
    fault: str, verdict: Verdict, code: ExitCode, fake_world: FakeWorld
) -> None:
    matrix = on_gpus(fake_world, tp=[1, 2], fault=[fault])
    leaks = {f"tp1-fault_{fault}": (0, 812, FOR_EVER)}
    found, ended = run(fake_world, matrix, leaks, repeats=2, allow_skipped=True)
    assert [one.finished and one.finished.verdict for one in found.every] == [verdict, *[Verdict.SKIPPED] * 3]
    assert outcomes(found) == [(verdict, {0: 812}), (Verdict.SKIPPED, None)]
    assert reason(found, 0).endswith("; 1 of its 2 runs were skipped")
    assert ended is code
    stopped, _ = run(fake_world, matrix, leaks, repeats=2, allow_skipped=True, fail_fast=True)
    assert len(stopped.attempts) == 1, "a red cell, and the last that ran"


def test_a_killed_rank_that_keeps_its_gpu_leaves_the_hang_a_hang(fake_world: FakeWorld) -> None:
    matrix = on_gpus(fake_world, fault=["hang", "none"])
    found, code = run(fake_world, matrix, {"fault_hang": (0, 900, FOR_EVER)}, gives_forced=True)
    assert outcomes(found) == [(Verdict.HANG, {0: 900}), (Verdict.SKIPPED, None)]
    assert "that fault_hang left" in reason(found, 1)
    assert found.forced == {}, "a forced pass would run on a GPU that is not free"
    assert code is ExitCode.HANG


def test_a_hang_whose_memory_comes_back_has_its_forced_pass(fake_world: FakeWorld) -> None:
    matrix = on_gpus(fake_world, fault=["hang", "none"])
    found, _ = run(fake_world, matrix, {}, gives_forced=True)
    assert [verdict for verdict, _ in outcomes(found)] == [Verdict.HANG, Verdict.PASS]
    assert found.forced.keys() == {"fault_hang"}


def test_an_engine_that_leaves_memory_is_not_calibrated(fake_world: FakeWorld) -> None:
    matrix = on_gpus(fake_world, tp=[1])
    for leaks in ({}, {"tp1.forced": (0, 300, FOR_EVER)}):
        around = surroundings(Gpus(fake_world.clock, leaks), gives_forced=True)
        with pytest.raises(GoldenDisputed, match="cell tp1: LEAK: 300 MiB on GPU 0") if leaks else nullcontext():
            calibrate(RunRequest(matrix=str(matrix)), 1, surroundings=around)


def test_memory_that_comes_back_late_or_almost_is_no_leak(fake_world: FakeWorld) -> None:
    late, almost = (0, 900, SETTLE_SECONDS / 2), (1, TOLERANCE_MIB, FOR_EVER)
    found, code = run(fake_world, on_gpus(fake_world, tp=[1, 2]), {"tp1": late, "tp2": almost})
    assert (outcomes(found), code) == ([(Verdict.PASS, {}), (Verdict.PASS, {})], ExitCode.PASS)


def test_a_leak_in_a_run_that_goes_wrong_otherwise_has_its_place(fake_world: FakeWorld) -> None:
    expected = {
        "drift": Verdict.LEAK,
        "request_error": Verdict.ERROR,
        "signal": Verdict.CRASH,
        "no_replay": Verdict.LEAK,
    }
    for fault, verdict in expected.items():
        matrix = on_gpus(fake_world, fault=[fault], graph=["on"])
        found, _ = run(fake_world, matrix, {f"fault_{fault}-graph_on": (0, 300, FOR_EVER)})
        assert outcomes(found) == [(verdict, {0: 300})]


def test_memory_that_cannot_be_read_gives_no_verdict_and_is_said_once(fake_world: FakeWorld) -> None:
    matrix = on_gpus(fake_world, tp=[1, 2])
    found, code = run(fake_world, matrix, {"tp1": (0, 900, FOR_EVER)}, readable=False)
    assert (outcomes(found), code) == ([(Verdict.PASS, None), (Verdict.PASS, None)], ExitCode.PASS)
    assert shown(found).count("leaks UNKNOWN: ") == 1
    assert "UNKNOWN" not in shown(run(fake_world, matrix, {})[0])


def test_cells_without_a_gpu_are_not_asked_about_its_memory(fake_world: FakeWorld) -> None:
    found, code = run(fake_world, fake_world.matrix(tp=[1, 2]), {"tp1": (0, 900, FOR_EVER)})
    assert (outcomes(found), code) == ([(Verdict.PASS, None), (Verdict.PASS, None)], ExitCode.PASS)
    assert "UNKNOWN" not in shown(found)


def test_what_other_programs_free_does_not_hide_a_leak() -> None:
    gpus = Reading({0: 5000})
    memory = follow(gpus)
    assert memory.held(GPU) is None
    gpus.now = {0: 100}
    assert memory.left(attempt("first")) == {}
    gpus.now = {0: 400}
    assert memory.left(attempt("second")) == {0: 300}


def test_a_gpu_that_is_free_again_runs_its_cells_again() -> None:
    gpus = Reading({0: 100})
    memory = follow(gpus)
    assert memory.held(GPU) is None
    gpus.now = {0: 900}
    assert memory.left(attempt("first")) == {0: 800}
    assert "GPU 0 still holds 800 MiB that first left" in str(memory.held(GPU))
    gpus.now = {0: 100}
    assert memory.held(GPU) is None
    gpus.now = {0: 500}
    assert memory.left(attempt("second")) == {0: 400}
    assert "GPU 0 still holds 400 MiB that second left" in str(memory.held(GPU))


def test_what_another_program_takes_between_attempts_skips_nothing() -> None:
    gpus = Reading({0: 100, 1: 100})
    memory = follow(gpus)
    assert memory.held(GPU) is None
    gpus.now = {0: 900, 1: 100}
    assert memory.left(attempt("first")) == {0: 800}
    gpus.now = {0: 900, 1: 7000}
    assert "GPU 1" not in str(memory.held(GPU | {"tp": 2}))
    gpus.now = {0: 100, 1: 7000}
    assert memory.held(GPU | {"tp": 2}) is None


def test_a_reading_that_fails_in_between_claims_nothing() -> None:
    gpus = Reading({0: 100})
    memory = follow(gpus)
    assert memory.held(GPU) is None
    for now in (None, {}, {1: 900}):
        gpus.now = now
        assert memory.left(attempt("first")) is None
    gpus.now = {0: 100}
    assert memory.left(attempt("second")) == {}


def test_gpus_that_could_not_be_read_at_first_are_not_asked_again() -> None:
    gpus = Reading(None)
    memory = follow(gpus)
    for _ in range(2):
        assert memory.held(GPU) is None
        assert memory.left(attempt("any")) is None
    assert gpus.num_asked == 1


GPU: dict[str, int | str] = {"device": "cuda", "tp": 1}


@dataclass
class Reading:
    """What the driver says at the moment."""

    now: dict[int, int] | None
    num_asked: int = 0

    def __call__(self) -> dict[int, int] | None:
        self.num_asked += 1
        return self.now


def follow(gpus: Reading) -> DeviceMemory:
    clock = VirtualClock()
    capabilities = Capabilities(target="any", axes=(), devices={"cuda": "tp"})
    return DeviceMemory(capabilities, gpus, Clock(clock.now, clock.sleep))


def attempt(key: str) -> AttemptStarted:
    fields = {
        "key": key,
        "attempt": {"cell": {"axes": {}}},
        "model": "toy",
        "suite": "trio",
        "dtype": "float32",
        "at": "",
    }
    return AttemptStarted.model_validate(fields | {"settings": GPU})


def shown(run: Run) -> str:
    console = Console(file=io.StringIO(), width=200)
    show(run.path, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()

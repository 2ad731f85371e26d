"""What ends an attempt in its middle: what is known by then is on record, and only an engine's fault is a verdict."""

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.records.rejudge import contradictions
from graphcheck.harness.records.run_folder import load_run
from graphcheck.harness.running.execute import Surroundings
from graphcheck.harness.running.interrupt import Interrupted
from graphcheck.harness.running.observe import Observer, Progress
from graphcheck.harness.running.run_matrix import run_matrix
from graphcheck.harness.running.supervise import Clock
from graphcheck.schema.errors import RunFolderError
from graphcheck.schema.events import Event
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import AttemptFinished
from graphcheck.schema.suite import Workload
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.base import Launch
from graphcheck.targets.fake import FakeSession, FakeTarget
from tests.fake_world import FakeWorld


class Listening(Observer):
    """Keeps the keys of the verdicts that it hears of."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def finished(self, record: AttemptFinished) -> None:
        self.heard.append(record.key)


def surroundings(world: FakeWorld, target: FakeTarget) -> Surroundings:
    clock = Clock(world.clock.now, world.clock.sleep)
    return Surroundings(load_target=lambda name: target, clock=clock, device_memory=lambda: None)


@pytest.mark.parametrize(("fault", "verdict"), [("hang", Verdict.HANG), ("drift", Verdict.TOKENS)])
def test_an_interrupt_in_the_forced_pass_does_not_lose_the_verdict_of_the_free_one(
    fault: str, verdict: Verdict, fake_world: FakeWorld
) -> None:
    class InterruptedTarget(FakeTarget):
        def start(self, launch: Launch, workload: Workload, out_dir: Path) -> FakeSession:
            if launch.attempt.feed == "forced":
                raise Interrupted(ExitCode.INTERRUPTED)
            return super().start(launch, workload, out_dir)

    observer = Listening()
    target = InterruptedTarget(fake_world.clock.sleep, gives_forced=True)
    request = RunRequest(matrix=str(fake_world.matrix(fault=[fault])))
    result = run_matrix(request, observer, surroundings(fake_world, target))
    run = load_run(result.path)
    finished = run.attempts[0].finished
    assert finished is not None
    assert (finished.verdict, result.exit_code) == (verdict, ExitCode.INTERRUPTED)
    assert (finished.facts.stall is not None) == (verdict is Verdict.HANG)
    assert finished.reason.endswith("; its forced pass did not end")
    assert run.forced[finished.key].finished is None
    assert list(contradictions(run)) == []
    assert observer.heard == [], "the attempt has not ended"


def test_a_forced_pass_that_ends_has_the_last_word(fake_world: FakeWorld) -> None:
    observer = Listening()
    target = FakeTarget(fake_world.clock.sleep, gives_forced=True)
    request = RunRequest(matrix=str(fake_world.matrix(fault=["derail"])))
    run = load_run(run_matrix(request, observer, surroundings(fake_world, target)).path)
    finished = run.attempts[0].finished
    assert finished is not None
    assert finished.prompts[0].detail == "1 of 12 forced steps wrong on rank 0"
    assert "forced pass did not end" not in finished.reason
    assert observer.heard == ["fault_derail.forced", "fault_derail"]


def test_a_session_that_fails_in_the_middle_keeps_its_steps_and_costs_the_attempt_alone(fake_world: FakeWorld) -> None:
    class OutOfFiles(FakeSession):
        num_steps = 0

        def events(self, timeout: float) -> Sequence[Event]:
            OutOfFiles.num_steps += 1
            if OutOfFiles.num_steps == 14:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().events(timeout)

    class Target(FakeTarget):
        def start(self, launch: Launch, workload: Workload, out_dir: Path) -> FakeSession:
            session = super().start(launch, workload, out_dir)
            if launch.settings["graph"] == "off":
                session.__class__ = OutOfFiles
            return session

    request = RunRequest(matrix=str(fake_world.matrix(graph=["off", "on"])))
    run = load_run(run_matrix(request, surroundings=surroundings(fake_world, Target(fake_world.clock.sleep))).path)
    lost, other = [attempt.finished for attempt in run.attempts]
    assert lost is not None
    assert other is not None
    assert (lost.verdict, other.verdict) == (Verdict.CRASH, Verdict.PASS)
    step = run.steps("graph_off")[-1].step
    assert step > 3
    assert lost.reason == (
        f"the supervisor lost its ranks in decode at step {step}: OSError: [Errno 24] Too many open files"
    )
    assert lost.facts.num_ranks == 1
    assert list(contradictions(run)) == []


class Failing(Observer):
    """Whoever follows the run, and fails at it once the engine steps."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def progress(self, progress: Progress) -> None:
        if progress.num_tokens:
            raise self._error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), ExitCode.INTERNAL),
        (RunFolderError("out", "can no longer be written", "free space"), ExitCode.USAGE),
    ],
)
def test_a_follower_that_fails_in_the_middle_is_no_crash_of_the_engine(
    error: Exception, code: ExitCode, fake_world: FakeWorld
) -> None:
    request = RunRequest(matrix=str(fake_world.matrix(graph=["on"])), run_dir=Path("out"))
    target = FakeTarget(fake_world.clock.sleep)
    with pytest.raises(type(error)) as raised:
        run_matrix(request, Failing(error), surroundings(fake_world, target))
    assert raised.value is error
    run = load_run(Path("out"))
    assert (run.info.exit_code, run.attempts[0].finished) == (code, None)

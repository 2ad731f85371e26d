"""The reference's process: what it reports and when, and how it ends; its numbers are another file's."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.golden.pending import GoldenPlace
from graphcheck.harness.golden.regen import regen
from graphcheck.harness.planning.plan import plan_attempts
from graphcheck.schema.errors import TargetError
from graphcheck.schema.events import ErrorEvent, Event, EvidenceEvent, ExitEvent, FinishedEvent, StepEvent
from graphcheck.targets.registry import load_target
from graphcheck.targets.transformers.target import WorkerSession
from tests.cli.program import ENVIRONMENT, is_alive, wait_until
from tests.engine.reference import REQUESTS, ids, of, run_inline, start
from tests.tiny_model import make_tiny_llama

MISSING = "model.layers.1.mlp.up_proj.weight"
PARENT = """
from pathlib import Path
from graphcheck.targets.transformers.target import WorkerSession
session = WorkerSession(Path("job.json"), Path("log"))
while not session.events(timeout=60.0): pass
print(session._process.pid, flush=True)
session._process.wait()
"""
"""Says who its worker is once that has imported its libraries; the job is a pipe that nobody writes."""


def drain(session: WorkerSession, *, until: str = "exit", seconds: float = 120) -> list[Event]:
    """Events up to the first one of kind `until`; phases are named by themselves (`done`)."""
    events: list[Event] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for event in session.events(timeout=0.5):
            events.append(event)
            if until == (event.phase if event.event == "phase" else event.event):
                return events
    raise AssertionError(f"no {until} within {seconds} s; last: {events[-1:]}")


def wait_until_idle(process: int) -> None:
    """Returns once the process has used no CPU for half a second: it waits, or is gone; ending takes CPU."""
    before, used = None, ["0"]
    while used != before:
        time.sleep(0.5)
        before, used = used, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]


@dataclass(frozen=True)
class Workers:
    """One that prints as it starts and runs two passes, one whose model lacks a weight, and one's parent."""

    folder: Path
    noisy: WorkerSession
    broken: WorkerSession
    parent: subprocess.Popen[str]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """All at once, since each takes seconds to import its libraries and a core of its own is as good."""
    folder = tmp_path_factory.mktemp("reference")
    sound, broken = (make_tiny_llama(folder / name) for name in ("sound", "broken"))
    weights = load_file(broken / "model.safetensors")
    del weights[MISSING]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    (folder / "site").mkdir()
    noise = "import os\nos.write(1, b'noise\\n')\nos.write(2, b'more\\n')\n"
    (folder / "site" / "sitecustomize.py").write_text(noise)
    path = os.pathsep.join([str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        noisy = start(sound, folder / "noisy", passes=2)
    os.mkfifo(folder / "job.json")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    started = Workers(folder, noisy, start(broken, folder / "broken-out"), parent)
    yield started
    for session in (started.noisy, started.broken):
        session.kill()
    parent.kill()
    parent.communicate()


@dataclass(frozen=True)
class Ended:
    """What came until the worker was done, while it waited to be released, and then."""

    working: list[Event]
    waiting: list[Event]
    released: list[Event]


@pytest.fixture(scope="module")
def ended(workers: Workers) -> Ended:
    working = drain(workers.noisy, until="done")
    wait_until_idle(workers.noisy._process.pid)
    waiting = list(workers.noisy.events(timeout=0.1))
    workers.noisy.release()
    return Ended(working, waiting, [] if waiting else drain(workers.noisy))


def test_what_the_worker_reports(ended: Ended) -> None:
    events = ended.working
    phases = [event.phase for event in events if event.event == "phase"]
    assert phases == ["start", "load", *["prefill", "decode"] * 4, "done"]
    steps = of(StepEvent, events)
    assert [step.step for step in steps] == list(range(len(steps)))
    for step in steps:
        assert (step.live, step.bucket, step.replayed, step.finite) == (1, None, False, (True,))
        assert step.phase == ("prefill" if step.index == (0,) else "decode")
    for request in REQUESTS:
        assert ids(events, request.id) == ids(events, request.id, run=1)
        assert len(ids(events, request.id)) == request.max_new_tokens
    finished = of(FinishedEvent, events)
    assert [(one.request, one.run, one.reason, one.num_tokens) for one in finished] == [
        ("a", 0, "length", 12),
        ("b", 0, "length", 5),
        ("a", 1, "length", 12),
        ("b", 1, "length", 5),
    ]
    [evidence] = [event.evidence for event in of(EvidenceEvent, events)]
    assert (evidence.captures, evidence.replays, evidence.eager_lane_tokens) == (0, 0, 2 * (11 + 4))
    assert evidence.backend.graph is None


def test_its_numbers_are_those_of_the_same_worker_in_this_process(
    workers: Workers, ended: Ended, tmp_path: Path
) -> None:
    inline = of(StepEvent, run_inline(workers.folder / "sound", tmp_path, passes=2))
    assert [(step.ids, step.top) for step in of(StepEvent, ended.working)] == [(step.ids, step.top) for step in inline]


def test_the_worker_stays_until_it_is_released(ended: Ended) -> None:
    assert ended.waiting == []
    assert ended.released == [ExitEvent(rank=0, status=0)]


def test_what_libraries_print_stays_out_of_the_events(workers: Workers, ended: Ended) -> None:
    assert (workers.folder / "noisy" / "rank0.log").read_text().startswith("noise\nmore\n")


def test_a_weight_that_is_missing_is_an_error_and_never_invented(workers: Workers) -> None:
    events = drain(workers.broken)
    [error] = of(ErrorEvent, events)
    assert (error.kind, error.phase, error.error) == ("crash", "load", "ValueError")
    assert MISSING in error.message
    assert events[-1] == ExitEvent(rank=0, status=1)


def test_a_killed_worker_is_gone_and_says_nothing_more(tmp_path: Path) -> None:
    session = start(make_tiny_llama(tmp_path / "tiny"), tmp_path / "out")
    session.kill()
    session.kill()
    assert session.events(timeout=1.0) == [ExitEvent(rank=0, signal=signal.SIGKILL)]
    assert session.events(timeout=0.0) == []


def test_a_stopped_worker_does_not_outlive_its_killed_parent(workers: Workers) -> None:
    assert workers.parent.stdout is not None
    worker = int(workers.parent.stdout.readline())
    os.kill(worker, signal.SIGSTOP)
    workers.parent.kill()
    wait_until(lambda: not is_alive(worker), 5, "nothing is left")


def test_a_worker_that_cannot_start_is_told_by_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny_llama(tmp_path / "tiny")
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "s.toml").write_text('name = "s"\nprompts = [{ id = "b", ids = [9], max_new_tokens = 5 }]\n')
    (tmp_path / "m.toml").write_text('models = ["tiny"]\nsuites = ["s"]\n[axes]\ndtype = ["float32"]\n')
    planned = plan_attempts(load_matrix(str(tmp_path / "m.toml")), load_target("transformers").describe())
    (tmp_path / "site" / "transformers").mkdir(parents=True)
    (tmp_path / "site" / "transformers" / "__init__.py").write_text("raise ImportError('not the real one')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    place = GoldenPlace(tmp_path / "mine", [tmp_path / "mine"])
    with pytest.raises(TargetError, match="rank 0 left with status 1: ImportError: not the real one"):
        regen(planned, place, "graphcheck golden regen m")

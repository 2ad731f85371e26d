"""Making goldens from what a reference reports; here the reference is a script of events."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graphcheck.harness.files.golden_store import read_golden
from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.golden import regen as golden_regen
from graphcheck.harness.golden.pending import GoldenPlace, State
from graphcheck.harness.golden.regen import REFERENCE_TARGET, Making, regen
from graphcheck.harness.golden.regen_matrix import regen_matrix
from graphcheck.harness.planning.plan import PlannedAttempt, plan_attempts
from graphcheck.harness.planning.request import RunRequest
from graphcheck.schema.capabilities import AxisSpec, Capabilities
from graphcheck.schema.errors import GoldenDisputed, TargetError, UsageError
from graphcheck.schema.events import ErrorEvent, Event, ExitEvent, FinishedEvent, PhaseEvent, StepEvent
from graphcheck.schema.suite import Workload
from graphcheck.targets.base import Launch
from tests.tiny_model import EOS, make_tiny_llama

MATRIX = """\
models = ["tiny"]
suites = ["s"]
[axes]
graph = ["off", "on"]
dtype = ["float32", "bfloat16"]
"""
SUITE = 'name = "s"\nstop = { fraction = 0.5, seed = 1 }\nprompts = [{ id = "a", ids = [3, 4], max_new_tokens = 5 }]\n'
CAPABILITIES = Capabilities(
    target="toy",
    axes=(
        AxisSpec(name="graph", kind="str", default="on", choices=("off", "on")),
        AxisSpec(name="dtype", kind="str", default="float32"),
    ),
)


def place(folder: Path) -> GoldenPlace:
    return GoldenPlace(folder / "golden", [folder / "golden"])


def step(index: int, token: int) -> StepEvent:
    return StepEvent(
        rank=0,
        step=index,
        phase="decode" if index else "prefill",
        requests=("a",),
        index=(index,),
        argmax=(token,),
        ids=(token,),
        finite=(True,),
        live=1,
        top=(((token, 2.0), (1, 1.0)),),
    )


FINISHED = FinishedEvent(rank=0, request="a", reason="stop", num_tokens=2)
DONE = PhaseEvent(rank=0, phase="done", seconds=1.0)
EXIT = ExitEvent(rank=0, status=0)


class ScriptedTarget:
    """Target and session in one: says what `script` says, one event a call, and notes what is asked of it.

    `again`, if given, is what it says when it is fed with the tokens of the first time.
    """

    def __init__(self) -> None:
        self.script: Sequence[Event] = (step(0, 7), step(1, EOS), FINISHED, DONE, EXIT)
        self.again: Sequence[Event] = ()
        self.calls: list[Any] = []

    def start(self, launch: Launch, workload: Workload, out_dir: Path) -> "ScriptedTarget":
        [request] = workload.requests
        self.calls.append((dict(launch.settings), request.stop_ids, request.forced_ids))
        self._left = list(self.script if request.forced_ids is None else self.again or self.script)
        return self

    def events(self, timeout: float) -> Sequence[Event]:
        return [self._left.pop(0)]

    def release(self) -> None:
        self.calls.append("release")

    def kill(self) -> None:
        self.calls.append("kill")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> ScriptedTarget:
    scripted = ScriptedTarget()
    monkeypatch.setattr(golden_regen, "load_target", {REFERENCE_TARGET: scripted}.__getitem__)
    return scripted


@pytest.fixture
def planned(tmp_path: Path) -> list[PlannedAttempt]:
    make_tiny_llama(tmp_path / "tiny", num_layers=1)
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "s.toml").write_text(SUITE)
    (tmp_path / "m.toml").write_text(MATRIX)
    return plan_attempts(load_matrix(str(tmp_path / "m.toml")), CAPABILITIES)


def test_one_golden_for_each_model_suite_and_dtype(
    target: ScriptedTarget, planned: list[PlannedAttempt], tmp_path: Path
) -> None:
    assert len(planned) == 4
    made = regen(planned, place(tmp_path), "graphcheck golden regen m")
    assert [str(one.path.relative_to(tmp_path)) for one in made] == [
        "golden/tiny/s.jsonl",
        "golden/tiny/s.bfloat16.jsonl",
    ]
    asked = [call for call in target.calls if isinstance(call, tuple)]
    float64 = {"attention": "sdpa", "arithmetic": "float64"}
    assert asked == [
        ({"dtype": "float32"}, (EOS,), None),
        ({"dtype": "float32", **float64}, (EOS,), (7, EOS)),
        ({"dtype": "float32", "attention": "sdpa", "arithmetic": "float32"}, (EOS,), (7, EOS)),
        ({"dtype": "bfloat16"}, (EOS,), None),
        ({"dtype": "bfloat16", **float64}, (EOS,), (7, EOS)),
        ({"dtype": "bfloat16", "attention": "sdpa", "arithmetic": "bfloat16"}, (EOS,), (7, EOS)),
    ]
    ends = [call for call in target.calls if not isinstance(call, tuple)]
    assert ends == [*["release", "kill"] * 6, "close"]
    assert {one.state for one in made} == {State.FIRST}
    golden = read_golden(made[1].path)
    [prompt] = golden.prompts
    assert (prompt.prompt_ids, prompt.ids, prompt.text, prompt.finish) == ((3, 4), (7, EOS), "w7 <eos>", "stop")
    assert prompt.steps[0].top == ((7, 2.0), (1, 1.0))
    header = golden.header
    assert (header.model_name, header.suite, header.dtype, header.command) == (
        "tiny",
        "s",
        "bfloat16",
        "graphcheck golden regen m",
    )
    assert header.model == planned[0].model.fingerprint()
    assert header.suite_sha == planned[0].suite.sha


def test_twice_gives_the_same_bytes_and_nothing_to_review(
    target: ScriptedTarget, planned: list[PlannedAttempt], tmp_path: Path
) -> None:
    made = regen(planned, place(tmp_path), "graphcheck golden regen m")
    before = [one.path.read_bytes() for one in made]
    again = regen(planned, place(tmp_path), "graphcheck golden regen once more")
    assert {one.state for one in again} == {State.SAME}
    assert [one.path.read_bytes() for one in again] == before
    assert sorted(path.name for path in made[0].path.parent.iterdir()) == ["s.bfloat16.jsonl", "s.jsonl"]


def test_a_second_computation_that_disagrees_leaves_no_golden(
    target: ScriptedTarget, planned: list[PlannedAttempt], tmp_path: Path
) -> None:
    target.again = (step(0, 8), step(1, EOS), FINISHED, DONE, EXIT)
    with pytest.raises(
        GoldenDisputed, match=r"golden tiny/s\.jsonl: prompt a, token 0: 7: a second computation gives token 8"
    ):
        regen(planned, place(tmp_path), "graphcheck golden regen m")
    assert not (tmp_path / "golden").exists()


def test_whoever_waits_hears_of_every_poll_and_where_it_is(
    target: ScriptedTarget, planned: list[PlannedAttempt], tmp_path: Path
) -> None:
    heard: list[Making] = []
    regen(planned[:1], place(tmp_path), "graphcheck golden regen m", heard.append)
    golden = Path("tiny/s.jsonl")
    assert len(heard) == 3 * len(target.script), "of every poll, also of those that bring nothing new"
    assert list(dict.fromkeys(heard)) == [Making(golden, number, "a") for number in (1, 2, 3)]


def test_before_the_first_step_the_model_is_being_loaded(
    target: ScriptedTarget, planned: list[PlannedAttempt], tmp_path: Path
) -> None:
    target.script = (PhaseEvent(rank=0, phase="load", seconds=1.0), *target.script)
    heard: list[Making] = []
    regen(planned[:1], place(tmp_path), "graphcheck golden regen m", heard.append)
    assert [making.prompt for making in heard[:2]] == [None, "a"]


def test_the_golden_of_a_dtype_that_no_matrix_names_is_made_as_the_hint_says(
    target: ScriptedTarget, planned: list[PlannedAttempt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.toml").write_text(MATRIX.replace('dtype = ["float32", "bfloat16"]\n', ""))
    [made] = regen_matrix(RunRequest(matrix="m.toml", settings=("dtype=float16",)))
    assert made.path == Path("golden/tiny/s.float16.jsonl")
    header = read_golden(made.path).header
    assert (header.dtype, header.command) == ("float16", "graphcheck golden regen m --set dtype=float16")
    for setting, says in (("typo=1", "typo = 1: target bundled has no such"), ("dtype=f4", "dtype = f4: not a value")):
        with pytest.raises(UsageError, match=says):
            regen_matrix(RunRequest(matrix="m.toml", settings=(setting,)))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            [
                ErrorEvent(rank=0, kind="request", error="IndexError", message="oops", phase="prefill", request="a"),
                EXIT,
            ],
            "IndexError in prompt a: oops",
        ),
        ([step(0, 7), EXIT], "prompt a: the reference ended before it finished"),
        ([step(0, 7), ExitEvent(rank=0, signal=9)], "rank 0 was killed by SIGKILL .signal 9.: it printed nothing"),
        ([ExitEvent(rank=0, status=1)], "rank 0 left with status 1: it printed nothing"),
        ([step(0, 7).model_copy(update={"finite": (False,), "top": None}), FINISHED, EXIT], "logits were not finite"),
    ],
)
def test_a_reference_that_fails_leaves_no_golden_and_no_process(
    target: ScriptedTarget, planned: list[PlannedAttempt], tmp_path: Path, script: list[Event], message: str
) -> None:
    target.script = script
    with pytest.raises(TargetError, match=message):
        regen(planned, place(tmp_path), "graphcheck golden regen m")
    assert target.calls[-2:] == ["kill", "close"]
    assert not (tmp_path / "golden").exists()

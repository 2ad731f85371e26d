"""The reference's numbers: tokens and logits are those of the model, and the golden is what was reported."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from graphcheck.engine.engine import _best
from graphcheck.harness.files.golden_store import load_golden
from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.golden.pending import GoldenPlace, State
from graphcheck.harness.golden.regen import regen
from graphcheck.harness.planning.plan import PlannedAttempt, plan_attempts
from graphcheck.schema.base import AxisValue
from graphcheck.schema.errors import TargetError
from graphcheck.schema.events import ErrorEvent, Event, FinishedEvent, StepEvent
from graphcheck.targets.registry import load_target
from graphcheck.targets.transformers.worker import best
from tests.engine.naive_llama import naive_logits
from tests.engine.reference import REQUESTS, ids, of, run_inline
from tests.tiny_model import EOS, make_tiny_llama


@dataclass(frozen=True)
class Baseline:
    """The run that most tests compare with."""

    model_dir: Path
    events: list[Event]


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Baseline:
    folder = tmp_path_factory.mktemp("reference")
    model_dir = make_tiny_llama(folder / "tiny")
    return Baseline(model_dir, run_inline(model_dir, folder / "out"))


def check_against_naive(model_dir: Path, events: list[Event], dtype: torch.dtype = torch.float32) -> None:
    for request in REQUESTS:
        tokens = list(request.prompt_ids)
        for step in of(StepEvent, events):
            if step.requests == (request.id,):
                values, best = naive_logits(model_dir, tuple(tokens), dtype).topk(4)
                assert [token for token, _ in step.top[0]] == best.tolist()
                torch.testing.assert_close(torch.tensor([logit for _, logit in step.top[0]]), values)
                assert step.ids == step.argmax == (step.top[0][0][0],)
                tokens.append(step.ids[0])
        assert len(tokens) > len(request.prompt_ids)


def test_tokens_and_logits_are_those_of_the_model(baseline: Baseline) -> None:
    check_against_naive(baseline.model_dir, baseline.events)


def test_of_more_equal_logits_than_are_told_the_lowest_ids_are_as_in_the_engine() -> None:
    for logits, lowest in ((torch.zeros(97), (0, 1, 2, 3)), (torch.tensor([0.0, 1.0, 2.0] * 50), (2, 5, 8, 11))):
        assert tuple(token for token, _ in best(logits)) == lowest
        assert best(logits)[0][0] == int(logits.argmax())
        assert _best(logits[None], [True]) == (best(logits),)
    assert best(torch.tensor([1.0, 3.0])) == ((1, 3.0), (0, 1.0))


def test_weights_are_rounded_to_the_dtype_and_used_in_float32(tmp_path: Path) -> None:
    model_dir = make_tiny_llama(tmp_path / "tiny", num_heads=4, num_kv_heads=4, intermediate_size=31, seed=5, tie=True)
    check_against_naive(model_dir, run_inline(model_dir, tmp_path / "out", dtype="bfloat16"), torch.bfloat16)


def test_each_prompt_runs_on_its_own(baseline: Baseline, tmp_path: Path) -> None:
    """Neither order nor an error nor another prompt's stop id reaches a prompt."""
    first = ids(baseline.events, "a")
    stop = next(token for token in first[2:] if token not in first[:2])
    a, b = REQUESTS
    stopped = a.model_copy(update={"id": "stopped", "stop_ids": (EOS, stop)})
    wrong = a.model_copy(update={"id": "wrong", "prompt_ids": (1, 100_000)})
    events = run_inline(baseline.model_dir, tmp_path, requests=(b, wrong, stopped, a))
    [error] = of(ErrorEvent, events)
    assert (error.kind, error.request, error.phase, error.error) == ("request", "wrong", "prefill", "IndexError")
    assert [(one.request, one.reason) for one in of(FinishedEvent, events)] == [
        ("b", "length"),
        ("stopped", "stop"),
        ("a", "length"),
    ]
    assert ids(events, "stopped") == first[: first.index(stop) + 1]
    assert ids(events, "a") == first
    assert ids(events, "b") == ids(baseline.events, "b")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_forced_tokens_are_fed_on_and_every_step_is_still_judged(
    baseline: Baseline, tmp_path: Path, attention: str
) -> None:
    """Fed with its own tokens it says the same again; fed with another one it says what follows from that."""
    own = ids(baseline.events, "a")
    other = (own[0], (own[1] + 1) % 211, *own[2:])
    a = REQUESTS[0]
    requests = tuple(
        a.model_copy(update={"id": name, "forced_ids": forced}) for name, forced in (("own", own), ("other", other))
    )
    settings: dict[str, AxisValue] = {"attention": attention, "arithmetic": "float64"}
    events = run_inline(baseline.model_dir, tmp_path, settings=settings, requests=requests)
    assert (ids(events, "own"), ids(events, "other")) == (own, other)
    judged = {
        name: [step.argmax[0] for step in of(StepEvent, events) if step.requests == (name,)]
        for name in ("own", "other")
    }
    assert tuple(judged["own"]) == own
    assert judged["other"][:2] == list(own[:2])
    for step in range(2, len(other)):
        logits = naive_logits(baseline.model_dir, (*a.prompt_ids, *other[:step]))
        assert judged["other"][step] == int(logits.argmax())


def test_arithmetic_in_another_dtype_is_less_exact_over_the_same_weights(baseline: Baseline, tmp_path: Path) -> None:
    own = ids(baseline.events, "a")
    requests = (REQUESTS[0].model_copy(update={"forced_ids": own}),)
    first = {
        arithmetic: of(
            StepEvent,
            run_inline(
                baseline.model_dir, tmp_path / arithmetic, settings={"arithmetic": arithmetic}, requests=requests
            ),
        )[0].top[0][0][1]
        for arithmetic in ("float64", "float32", "bfloat16")
    }
    assert 0 < abs(first["float32"] - first["float64"]) < 1e-4
    assert abs(first["bfloat16"] - first["float64"]) > 1e-4


def test_a_checkpoints_sampling_defaults_are_left_out(baseline: Baseline, tmp_path: Path) -> None:
    other = make_tiny_llama(tmp_path / "tiny")
    sampling = {"do_sample": True, "temperature": 9.0, "repetition_penalty": 5.0, "max_length": 8}
    (other / "generation_config.json").write_text(json.dumps(sampling))
    steps = of(StepEvent, run_inline(other, tmp_path / "out"))
    assert [step.top for step in steps] == [step.top for step in of(StepEvent, baseline.events)]


MATRIX = """\
models = ["tiny"]
suites = ["s"]
[axes]
dtype = ["float32"]
"""
SUITE = """\
name = "s"
stop = { fraction = 0.5, seed = 3 }
[[prompts]]
id = "a"
text = "w1 w2 w3 w4 w5 w6"
arrival = 4
max_new_tokens = 12
[[prompts]]
id = "b"
ids = [9]
max_new_tokens = 5
"""


def place(folder: Path) -> GoldenPlace:
    return GoldenPlace(folder / "mine", [folder / "mine"])


def plan(folder: Path) -> list[PlannedAttempt]:
    make_tiny_llama(folder / "tiny")
    (folder / "suites").mkdir()
    (folder / "suites" / "s.toml").write_text(SUITE)
    (folder / "m.toml").write_text(MATRIX)
    return plan_attempts(load_matrix(str(folder / "m.toml")), load_target("transformers").describe())


@pytest.mark.usefixtures("inline_reference")
def test_the_golden_is_what_the_reference_reported_and_its_bytes_repeat(baseline: Baseline, tmp_path: Path) -> None:
    [planned] = plan(tmp_path)
    [made] = regen([planned], place(tmp_path), "graphcheck golden regen m")
    assert made.state is State.FIRST
    assert sum(len(prompt.ids) for prompt in made.review.new.prompts) == 17
    before = made.path.read_bytes()
    [again] = regen([planned], place(tmp_path), "graphcheck golden regen again")
    assert again.state is State.SAME
    assert made.path.read_bytes() == before
    assert str(tmp_path).encode() not in before

    golden = load_golden(planned.model, planned.suite, "float32", [tmp_path / "mine"])
    steps = of(StepEvent, baseline.events)
    assert {prompt.id: prompt.ids for prompt in golden.prompts} == {name: ids(steps, name) for name in ("a", "b")}
    kept = [step.top for prompt in golden.prompts for step in prompt.steps]
    torch.testing.assert_close(torch.tensor(kept), torch.tensor([step.top[0] for step in steps]), rtol=0, atol=0)


@pytest.mark.usefixtures("inline_reference")
def test_a_golden_with_logits_that_are_not_finite_is_not_written(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    weights = load_file(tmp_path / "tiny" / "model.safetensors")
    weights["model.norm.weight"][:] = torch.nan
    save_file(weights, tmp_path / "tiny" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(TargetError, match="prompt a: logits were not finite"):
        regen(planned, place(tmp_path), "graphcheck golden regen m")
    assert not (tmp_path / "mine").exists()

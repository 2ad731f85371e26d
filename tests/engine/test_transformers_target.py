"""The reference: what its worker reports through the target interface, and the golden that is made of it."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from graphcheck.harness.golden_pending import GoldenPlace, State
from graphcheck.harness.golden_regen import regen
from graphcheck.harness.golden_store import load_golden
from graphcheck.harness.matrix_file import load_matrix
from graphcheck.harness.plan import PlannedAttempt, plan_attempts
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.errors import TargetError
from graphcheck.schema.events import ErrorEvent, Event, EvidenceEvent, ExitEvent, FinishedEvent, StepEvent
from graphcheck.schema.suite import Request, Workload
from graphcheck.targets.base import Launch
from graphcheck.targets.registry import load_target
from graphcheck.targets.transformers.target import WorkerSession
from tests.tiny_model import EOS, make_tiny_llama

REQUESTS = (
    Request(id="a", prompt_ids=(1, 2, 3, 4, 5, 6), max_new_tokens=12, stop_ids=(EOS,)),
    Request(id="b", prompt_ids=(9,), max_new_tokens=5, stop_ids=(EOS,)),
)


def start(
    model_dir: Path,
    out_dir: Path,
    dtype: str = "float32",
    settings: dict[str, AxisValue] | None = None,
    **changes: Any,
) -> WorkerSession:
    workload = Workload(suite="s", requests=REQUESTS).model_copy(update=changes)
    settings = {"dtype": dtype, **(settings or {})}
    launch = Launch(attempt=Attempt(cell=Cell(axes=settings)), model_dir=model_dir, settings=settings)
    session = load_target("transformers").start(launch, workload, out_dir)
    assert isinstance(session, WorkerSession)
    return session


def drain(session: WorkerSession, *, release: bool = True, until: str = "exit", seconds: float = 120) -> list[Event]:
    """Events up to the first one of kind `until`; phases are named by themselves (`done`)."""
    events: list[Event] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for event in session.events(timeout=0.5):
            events.append(event)
            name = event.phase if event.event == "phase" else event.event
            if name == "done" and release:
                session.release()
            if name == until:
                return events
    raise AssertionError(f"no {until} within {seconds} s; last: {events[-1:]}")


def run(model_dir: Path, out_dir: Path, **changes: Any) -> list[Event]:
    session = start(model_dir, out_dir, **changes)
    try:
        return drain(session)
    finally:
        session.kill()


def of(kind: type, events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def ids(events: list[Event], request: str, run: int = 0) -> tuple[int, ...]:
    return tuple(step.ids[0] for step in of(StepEvent, events) if step.requests == (request,) and step.run == run)


@dataclass(frozen=True)
class Baseline:
    """The one run that most tests look at or compare with: two passes, released, with noise on stdout and stderr."""

    model_dir: Path
    out_dir: Path
    events: list[Event]


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Baseline:
    folder = tmp_path_factory.mktemp("reference")
    (folder / "site").mkdir()
    noise = "import os\nos.write(1, b'noise\\n')\nos.write(2, b'more\\n')\n"
    (folder / "site" / "sitecustomize.py").write_text(noise)
    model_dir = make_tiny_llama(folder / "tiny")
    path = os.pathsep.join([str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        return Baseline(model_dir, folder / "out", run(model_dir, folder / "out", passes=2))


def naive_logits(model_dir: Path, token_ids: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Llama written down a second time, without cache: logits [vocab_size] of the last position, float32."""
    config = json.loads((model_dir / "config.json").read_text())
    weights = {name: tensor.to(dtype).float() for name, tensor in load_file(model_dir / "model.safetensors").items()}
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    length = len(token_ids)
    angles = torch.arange(length)[:, None] * config["rope_theta"] ** (-torch.arange(0, dim, 2) / dim)  # [T, dim/2]
    cos, sin = angles.cos().repeat(1, 2)[None], angles.sin().repeat(1, 2)[None]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * weights[f"{name}.weight"]

    def rotate(x: torch.Tensor) -> torch.Tensor:  # [H, T, dim]
        half = torch.cat([-x[..., dim // 2 :], x[..., : dim // 2]], -1)
        return x * cos + half * sin

    x = weights["model.embed_tokens.weight"][list(token_ids)]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"

        def linear(x: torch.Tensor, name: str, prefix: str = prefix) -> torch.Tensor:
            return x @ weights[f"{prefix}.{name}.weight"].T

        h = norm(x, f"{prefix}.input_layernorm")
        q, k, v = (
            linear(h, f"self_attn.{name}").view(length, count, dim).transpose(0, 1)
            for name, count in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads))
        )
        q, k = rotate(q), rotate(k).repeat_interleave(heads // kv_heads, 0)
        scores = q @ k.transpose(1, 2) / dim**0.5 + torch.full((length, length), -torch.inf).triu(1)
        mixed = scores.softmax(-1) @ v.repeat_interleave(heads // kv_heads, 0)
        x = x + linear(mixed.transpose(0, 1).reshape(length, heads * dim), "self_attn.o_proj")
        h = norm(x, f"{prefix}.post_attention_layernorm")
        x = x + linear(torch.nn.functional.silu(linear(h, "mlp.gate_proj")) * linear(h, "mlp.up_proj"), "mlp.down_proj")
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return norm(x[-1], "model.norm") @ head.T


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


def test_what_the_worker_reports(baseline: Baseline) -> None:
    events = baseline.events
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
    assert events[-1] == ExitEvent(rank=0, status=0)


def test_tokens_and_logits_are_those_of_the_model(baseline: Baseline) -> None:
    check_against_naive(baseline.model_dir, [event for event in baseline.events if getattr(event, "run", 0) == 0])


def test_what_libraries_print_stays_out_of_the_events(baseline: Baseline) -> None:
    assert (baseline.out_dir / "rank0.log").read_text().startswith("noise\nmore\n")


def test_weights_are_rounded_to_the_dtype_and_used_in_float32(tmp_path: Path) -> None:
    model_dir = make_tiny_llama(tmp_path / "tiny", num_heads=4, num_kv_heads=4, intermediate_size=31, seed=5, tie=True)
    check_against_naive(model_dir, run(model_dir, tmp_path / "out", dtype="bfloat16"), torch.bfloat16)


def test_each_prompt_runs_on_its_own(baseline: Baseline, tmp_path: Path) -> None:
    """Neither order nor an error nor another prompt's stop id reaches a prompt."""
    first = ids(baseline.events, "a")
    stop = next(token for token in first[2:] if token not in first[:2])
    a, b = REQUESTS
    stopped = a.model_copy(update={"id": "stopped", "stop_ids": (EOS, stop)})
    wrong = a.model_copy(update={"id": "wrong", "prompt_ids": (1, 100_000)})
    events = run(baseline.model_dir, tmp_path, requests=(b, wrong, stopped, a))
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
    events = run(baseline.model_dir, tmp_path, settings=settings, requests=requests)
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
            run(baseline.model_dir, tmp_path / arithmetic, settings={"arithmetic": arithmetic}, requests=requests),
        )[0].top[0][0][1]
        for arithmetic in ("float64", "float32", "bfloat16")
    }
    assert 0 < abs(first["float32"] - first["float64"]) < 1e-4
    assert abs(first["bfloat16"] - first["float64"]) > 1e-4


def test_a_checkpoints_sampling_defaults_are_left_out(baseline: Baseline, tmp_path: Path) -> None:
    other = make_tiny_llama(tmp_path / "tiny")
    sampling = {"do_sample": True, "temperature": 9.0, "repetition_penalty": 5.0, "max_length": 8}
    (other / "generation_config.json").write_text(json.dumps(sampling))
    steps = of(StepEvent, run(other, tmp_path / "out"))
    assert [step.top for step in steps] == [step.top for step in of(StepEvent, baseline.events) if step.run == 0]


def test_a_weight_that_is_missing_is_an_error_and_never_invented(tmp_path: Path) -> None:
    model_dir = make_tiny_llama(tmp_path / "tiny")
    weights = load_file(model_dir / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, model_dir / "model.safetensors", metadata={"format": "pt"})
    events = run(model_dir, tmp_path / "out")
    [error] = of(ErrorEvent, events)
    assert (error.kind, error.phase, error.error) == ("crash", "load", "ValueError")
    assert "model.layers.1.mlp.up_proj.weight" in error.message
    assert events[-1] == ExitEvent(rank=0, status=1)


def test_the_worker_stays_until_it_is_killed(baseline: Baseline, tmp_path: Path) -> None:
    session = start(baseline.model_dir, tmp_path, requests=REQUESTS[1:])
    drain(session, release=False, until="done")
    assert session.events(timeout=1.0) == []
    session.kill()
    session.kill()
    assert session.events(timeout=1.0) == [ExitEvent(rank=0, signal=signal.SIGKILL)]
    assert session.events(timeout=0.0) == []
    session.release()


def test_a_worker_whose_parent_is_gone_leaves_by_itself(baseline: Baseline, tmp_path: Path) -> None:
    session = start(baseline.model_dir, tmp_path)
    drain(session, release=False, until="load")
    session._stdin.close()  # what the kernel does for a parent that was killed
    assert drain(session)[-1] == ExitEvent(rank=0, status=1)
    session.kill()


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
    steps = [step for step in of(StepEvent, baseline.events) if step.run == 0]
    assert {prompt.id: prompt.ids for prompt in golden.prompts} == {name: ids(steps, name) for name in ("a", "b")}
    kept = [step.top for prompt in golden.prompts for step in prompt.steps]
    torch.testing.assert_close(torch.tensor(kept), torch.tensor([step.top[0] for step in steps]), rtol=0, atol=0)


def test_a_golden_with_logits_that_are_not_finite_is_not_written(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    weights = load_file(tmp_path / "tiny" / "model.safetensors")
    weights["model.norm.weight"][:] = torch.nan
    save_file(weights, tmp_path / "tiny" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(TargetError, match="prompt a: logits were not finite"):
        regen(planned, place(tmp_path), "graphcheck golden regen m")
    assert not (tmp_path / "mine").exists()


def test_a_worker_that_cannot_start_is_told_by_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(tmp_path)
    (tmp_path / "site" / "transformers").mkdir(parents=True)
    (tmp_path / "site" / "transformers" / "__init__.py").write_text("raise ImportError('not the real one')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    with pytest.raises(TargetError, match="the reference ended with exit status 1: ImportError: not the real one"):
        regen(planned, place(tmp_path), "graphcheck golden regen m")

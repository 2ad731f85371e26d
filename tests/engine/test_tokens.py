"""The engine's tokens against transformers, and against themselves under everything that must not matter."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from graphcheck.engine.config import EngineConfig, defaults
from graphcheck.engine.request import Request
from tests.engine.conftest import EngineMaker
from tests.engine.outputs import random_requests, run_engine
from tests.tiny_model import make_tiny_llama

VOCAB = 211


def reference(folder: Path, requests: list[Request]) -> dict[str, list[int]]:
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = {}
    for request in requests:
        ids = torch.tensor([request.prompt_ids])
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request.max_new_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        tokens[request.id] = out[0, ids.shape[1] :].tolist()
    return tokens


@pytest.mark.parametrize("tie", [False, True])
def test_tokens_equal_transformers_with_graphs_off_and_on(make_engine: EngineMaker, tmp_path: Path, tie: bool) -> None:
    folder = make_tiny_llama(tmp_path, tie=tie, seed=3)
    requests = random_requests(12, vocab=VOCAB)
    expected = reference(folder, requests)
    for graph in ("off", "on"):
        assert run_engine(make_engine(folder, graph=graph), requests).tokens == expected


def test_every_decode_step_that_a_bucket_covers_is_replayed(make_engine: EngineMaker) -> None:
    engine = make_engine(graph="on", lanes=12, buckets="1,2,4,8")
    requests = [
        Request(**{**vars(request), "arrival": 0, "max_new_tokens": 14 + 2 * number})
        for number, request in enumerate(random_requests(12, vocab=VOCAB))
    ]
    steps = run_engine(engine, requests).steps
    decode = [step for step in steps if step.phase == "decode"]
    assert {len(step.requests) > 8 for step in decode} == {True, False}
    assert all(step.replayed == (len(step.requests) <= 8) for step in decode)
    counters = engine.counters()
    assert counters.replayed_lane_tokens == sum(len(step.requests) for step in decode if step.replayed)
    assert counters.eager_lane_tokens == sum(len(step.requests) for step in decode if not step.replayed)
    assert counters.padded_lanes == sum(step.bucket - len(step.requests) for step in decode if step.replayed)


def test_no_model_code_runs_after_capture(make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = random_requests(6, vocab=VOCAB)
    expected = run_engine(make_engine(graph="on"), requests).tokens
    engine = make_engine(graph="on")
    forward, phases = type(engine.parts.program.model).forward, []

    def only_prefill(self: object, token_ids: torch.Tensor, positions: torch.Tensor, attention: object) -> torch.Tensor:
        phases.append(type(attention).__name__)
        assert type(attention).__name__ == "PrefillAttention", "model code ran in a decode step"
        return forward(self, token_ids, positions, attention)

    monkeypatch.setattr(type(engine.parts.program.model), "forward", only_prefill)
    assert run_engine(engine, requests).tokens == expected
    assert len(phases) == len(requests)


def test_order_and_arrival_do_not_change_a_prompts_tokens(make_engine: EngineMaker) -> None:
    requests = random_requests(9, vocab=VOCAB)
    expected = run_engine(make_engine(graph="on"), requests).tokens
    shifted = [Request(**{**vars(request), "arrival": 5 * number}) for number, request in enumerate(reversed(requests))]
    assert run_engine(make_engine(graph="on"), shifted).tokens == expected


def test_second_run_in_one_process_gives_the_same_tokens(make_engine: EngineMaker) -> None:
    engine, requests = make_engine(graph="on"), random_requests(9, vocab=VOCAB)
    assert run_engine(engine, requests).tokens == run_engine(engine, requests).tokens


def test_forced_tokens_are_fed_on_through_the_same_graphs_and_the_argmax_is_still_judged(
    make_engine: EngineMaker,
) -> None:
    (request,) = random_requests(1, vocab=VOCAB, max_new_tokens=8)
    forced = tuple(range(20, 28))
    by_graph = {
        graph: run_engine(make_engine(graph=graph), [Request(**{**vars(request), "forced_ids": forced})])
        for graph in ("off", "on")
    }
    assert by_graph["on"].tokens == by_graph["off"].tokens == {"r0": list(forced)}
    teacher = [
        run_engine(
            make_engine(graph="off"),
            [Request("r0", request.prompt_ids + forced[:step], max_new_tokens=1)],
        ).tokens["r0"][0]
        for step in range(len(forced))
    ]
    assert by_graph["on"].argmax["r0"] == teacher
    assert teacher != list(forced)


def test_stop_ids_end_a_sequence_after_the_stop_token(make_engine: EngineMaker) -> None:
    (request,) = random_requests(1, vocab=VOCAB)
    tokens = run_engine(make_engine(), [request]).tokens["r0"]
    stop = next(token for token in tokens[2:] if token not in tokens[:2])
    stopped = run_engine(make_engine(), [Request(**{**vars(request), "stop_ids": (stop,)})]).tokens["r0"]
    assert stopped == tokens[: tokens.index(stop) + 1]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("bad", tuple(range(120)), max_new_tokens=9), "context of 128"),
        (Request("bad", (3, 211), max_new_tokens=4), "outside the vocabulary of 211"),
        (Request("bad", (), max_new_tokens=4), "at least one token"),
        (Request("bad", (3,), max_new_tokens=0), "0 new tokens"),
        (Request("bad", (3,), max_new_tokens=2, forced_ids=(4, -1)), "token id -1 is outside the vocabulary of 211"),
        (Request("bad", (3,), max_new_tokens=2, forced_ids=()), "no forced ids"),
    ],
)
def test_request_that_can_never_be_served_is_an_error_and_the_others_go_on(
    make_engine: EngineMaker, request_: Request, message: str
) -> None:
    good = random_requests(2, vocab=VOCAB)
    collected = run_engine(make_engine(), [good[0], request_, good[1]])
    assert [message in str(error) for error in collected.errors] == [True]
    assert set(collected.tokens) == {"r0", "r1"}


def test_graphs_are_opt_in() -> None:
    assert defaults()["graph"] == "off"
    assert EngineConfig.from_settings({}, frozenset()).graph is False

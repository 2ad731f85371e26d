"""The families: the tiny checkpoints give transformers' tokens at every TP, and what is a family's own counts."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from graphcheck import shipped
from graphcheck.engine.architecture import read_config
from graphcheck.engine.errors import CheckpointError
from graphcheck.engine.request import Request
from graphcheck.harness.files.golden_store import load_golden
from graphcheck.harness.files.model_folder import find_model
from graphcheck.harness.files.suite_file import load_suite
from graphcheck.harness.planning.resolve import resolve
from graphcheck.models.make_families import TINY_MODELS, TinyModel, make
from graphcheck.schema.events import StepEvent
from graphcheck.schema.golden import Golden
from graphcheck.targets.bundled.target import BundledTarget
from tests.engine.conftest import EngineMaker
from tests.engine.outputs import run_attempt, run_engine

NAMES = [model.name for model in TINY_MODELS]
PAIRS = (
    (1, "off", "paged"),
    (1, "on", "static"),
    (2, "off", "static"),
    (2, "on", "paged"),
    (4, "off", "paged"),
    (4, "on", "static"),
)
"""TP, graph and KV layout: every two values meet. On the probe all three do, at TP 1 and 2, in the matrix `shapes`."""
WIDE = 0.01
"""Logits; float32 sums in another order differ by less than a thousandth of it."""


@dataclass(frozen=True)
class Family:
    """A shipped checkpoint with the suite `families` resolved for it, and transformers' answers."""

    folder: Path
    requests: list[Request]
    golden: Golden

    @property
    def answers(self) -> dict[str, list[int]]:
        return {prompt.id: list(prompt.ids) for prompt in self.golden.prompts}


@pytest.fixture(params=NAMES)
def family(request: pytest.FixtureRequest) -> Family:
    return load(request.param)


def load(name: str) -> Family:
    model = find_model(name)
    suite = load_suite("families", shipped.matrices_dir() / "families.toml")
    golden = load_golden(model, suite, "float32", [shipped.golden_dir()])
    requests = [Request(**dict(request)) for request in resolve(suite, model, golden).requests]
    return Family(model.path, requests, golden)


def run_cell(target: BundledTarget, family: Family, out_dir: Path, **settings: int | str) -> dict[int, list[StepEvent]]:
    """Steps by rank. Every rank finished without an error, and replayed every decode step if graphs were on."""
    facts, steps = run_attempt(target, family.folder, family.requests, out_dir, **settings)
    assert facts.stall is None
    assert not facts.errors
    by_rank = {rank: [step for step in steps if step.rank == rank] for rank in range(facts.num_ranks)}
    for own in by_rank.values():
        assert all(step.replayed == (settings["graph"] == "on") for step in own if step.phase == "decode")
    return by_rank


def tokens(steps: list[StepEvent]) -> dict[str, list[int]]:
    collected: dict[str, list[int]] = {}
    for step in steps:
        for request, token in zip(step.requests, step.ids, strict=True):
            collected.setdefault(request, []).append(token)
    return collected


def test_tokens_equal_transformers_for_every_pair_of_tp_graph_and_layout(
    target: BundledTarget, family: Family, tmp_path: Path
) -> None:
    for tp, graph, kv in PAIRS:
        by_rank = run_cell(target, family, tmp_path / f"{tp}{graph}{kv}", tp=tp, graph=graph, kv=kv)
        assert len(by_rank) == tp
        for rank, steps in by_rank.items():
            assert tokens(steps) == family.answers, f"rank {rank} at tp={tp}, graph={graph}, kv={kv}"


def test_ordinary_shards_give_the_same_tokens_in_float32(target: BundledTarget, family: Family, tmp_path: Path) -> None:
    for tp, graph in ((1, "on"), (2, "off"), (4, "on")):
        by_rank = run_cell(target, family, tmp_path / f"{tp}{graph}", tp=tp, graph=graph, numerics="fast")
        assert all(tokens(steps) == family.answers for steps in by_rank.values()), f"tp={tp}, graph={graph}"


@pytest.mark.parametrize("tp", [1, 2])
def test_ordinary_shards_in_bfloat16_give_the_same_bits_with_graphs_off_and_on(
    target: BundledTarget, family: Family, tmp_path: Path, tp: int
) -> None:
    logits = {}
    for graph in ("off", "on"):
        settings: dict[str, int | str] = {"tp": tp, "graph": graph, "numerics": "fast", "dtype": "bfloat16"}
        by_rank = run_cell(target, family, tmp_path / graph, **settings, logits="digest")
        logits[graph] = [[(step.requests, step.logits_sha) for step in steps] for steps in by_rank.values()]
    assert logits["on"] == logits["off"]
    assert all(sha for steps in logits["on"] for _, sha in steps)


def test_the_right_answers_use_their_length_and_have_wide_margins(family: Family) -> None:
    for request, prompt in zip(family.requests, family.golden.prompts, strict=True):
        assert (prompt.finish, len(prompt.ids)) == ("length", request.max_new_tokens)
        assert min(step.margin for step in prompt.steps) > WIDE
        assert len(set(prompt.ids)) > 3, "an answer of one token shows no KV slot"


@pytest.mark.parametrize("model", TINY_MODELS, ids=NAMES)
def test_the_script_makes_what_is_shipped(model: TinyModel, tmp_path: Path) -> None:
    make(model, tmp_path)
    folder = shipped.models_dir() / model.name
    assert (tmp_path / "config.json").read_bytes() == (folder / "config.json").read_bytes()
    assert (tmp_path / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    made, kept = (Tokenizer.from_file(str(path / "tokenizer.json")) for path in (tmp_path, folder))
    assert made.to_str() == kept.to_str()


@pytest.mark.parametrize("model", TINY_MODELS, ids=NAMES)
def test_whatever_is_split_over_ranks_needs_padding(model: TinyModel) -> None:
    config = read_config(shipped.models_dir() / model.name)
    split = (config.num_heads, config.num_kv_heads, config.intermediate_size, config.vocab_size)
    assert all(size % 4 for size in split), split


Weights = dict[str, np.ndarray]


def unscaled(config: dict[str, object], weights: Weights) -> None:
    del config["rope_scaling"]


def unbiased(part: str) -> Callable[[dict[str, object], Weights], None]:
    def change(config: dict[str, object], weights: Weights) -> None:
        for name in weights:
            if name.endswith(f"{part}_proj.bias"):
                weights[name] = np.zeros_like(weights[name])

    return change


def unweighted(part: str) -> Callable[[dict[str, object], Weights], None]:
    def change(config: dict[str, object], weights: Weights) -> None:
        for name in weights:
            if name.endswith(f"{part}_norm.weight"):
                weights[name] = np.ones_like(weights[name])

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tiny-llama3", unscaled),
        *(("tiny-qwen2", unbiased(part)) for part in "qkv"),
        *(("tiny-qwen3", unweighted(part)) for part in "qk"),
    ],
    ids=["rope-scaling", "q-bias", "k-bias", "v-bias", "q-norm", "k-norm"],
)
def test_without_what_makes_a_family_its_own_most_answers_change(
    make_engine: EngineMaker, tmp_path: Path, name: str, change: Callable[[dict[str, object], Weights], None]
) -> None:
    family = load(name)
    shutil.copytree(family.folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    weights = load_file(tmp_path / "model.safetensors")
    change(config, weights)
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = run_engine(make_engine(tmp_path), family.requests).tokens
    changed = [prompt for prompt, answer in family.answers.items() if found[prompt] != answer]
    assert len(changed) > len(family.answers) // 2, changed


def test_a_sliding_window_within_the_context_is_refused(tmp_path: Path) -> None:
    shutil.copy(shipped.models_dir() / "tiny-mistral" / "config.json", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"sliding_window": 64}))
    with pytest.raises(CheckpointError, match="sliding_window = 64 is not implemented"):
        read_config(tmp_path)

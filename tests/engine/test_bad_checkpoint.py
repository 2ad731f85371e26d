"""Checkpoints that the engine refuses: one line, before any tensor is loaded."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from graphcheck.engine.architecture import read_config
from graphcheck.engine.checkpoint import Checkpoint
from graphcheck.engine.errors import CheckpointError

Weights = dict[str, np.ndarray]
WEIGHTS = "model.safetensors"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def without(name: str) -> Callable[[Weights], Weights]:
    return lambda weights: {key: value for key, value in weights.items() if key != name}


TENSORS: dict[str, tuple[Callable[[Weights], Weights], str]] = {
    "a missing one": (without(NORM), f"tensor {NORM} is missing; "),
    "a missing head": (without(HEAD), f"tensor {HEAD} is missing; "),
    "a missing layer": (without("model.layers.1.mlp.up_proj.weight"), "tensor model.layers.1.mlp.up_proj.weight is mi"),
    "none": (lambda weights: {}, "is missing; "),
    "an extra one": (lambda weights: weights | {"model.bias": weights[NORM]}, "tensor model.bias is not part of "),
    "an extra layer": (
        lambda weights: weights | {"model.layers.2.input_layernorm.weight": weights[NORM]},
        "tensor model.layers.2.input_layernorm.weight is not part of ",
    ),
    "a bias": (
        lambda weights: weights | {"model.layers.0.self_attn.q_proj.bias": weights[NORM]},
        "tensor model.layers.0.self_attn.q_proj.bias is not part of ",
    ),
    "a shorter one": (lambda weights: weights | {NORM: weights[NORM][:-1]}, f"tensor {NORM} has shape (47,): config"),
    "a transposed one": (
        lambda weights: weights | {HEAD: weights[HEAD].T.copy()},
        f"tensor {HEAD} has shape (48, 211)",
    ),
    "one of more dimensions": (
        lambda weights: weights | {NORM: weights[NORM][None]},
        "has shape (1, 48): config.json ",
    ),
}

CONFIGS: dict[str, tuple[dict[str, object], str]] = {
    "another architecture": ({"architectures": ["GPT2LMHeadModel"]}, "not implemented; the engine runs Llama"),
    "two architectures": ({"architectures": ["LlamaForCausalLM", "Qwen2ForCausalLM"]}, "not implemented; "),
    "no architecture": ({"architectures": None}, "architectures = None: not implemented; "),
    "an architecture in lists": ({"architectures": [["LlamaForCausalLM"]]}, "not implemented; "),
    "an attention bias": ({"attention_bias": True}, "attention_bias is not implemented; "),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act = gelu is not implemented; "),
    "a sliding window": ({"sliding_window": 16}, "sliding_window = 16 is not implemented; "),
    "quantized weights": ({"quantization_config": {"bits": 4}}, "quantization_config is not implemented; "),
    "another scaling": ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type = yarn is not implemented; "),
    "heads that do not divide": ({"num_key_value_heads": 4}, "6 query heads do not divide into 4 KV heads; "),
    "no heads": ({"num_attention_heads": 0}, "num_attention_heads = 0: a size is a positive whole number; "),
    "layers in words": ({"num_hidden_layers": "2"}, "num_hidden_layers = '2': a size is a positive whole number; "),
    "no width": ({"hidden_size": None}, "hidden_size = None: a size is a positive whole number; "),
    "half a layer": ({"num_hidden_layers": 1.5}, "num_hidden_layers = 1.5: a size is a positive whole number; "),
    "a window in words": ({"sliding_window": "16"}, "sliding_window = '16': a size is a positive whole number; "),
    "an epsilon in words": ({"rms_norm_eps": "x"}, "rms_norm_eps = 'x': a factor is a positive number; "),
    "no epsilon": ({"rms_norm_eps": None}, "rms_norm_eps = None: a factor is a positive number; "),
    "a true epsilon": ({"rms_norm_eps": True}, "rms_norm_eps = True: a factor is a positive number; "),
    "an epsilon that is no number": ({"rms_norm_eps": math.nan}, "rms_norm_eps = nan: a factor is a positive number; "),
    "an endless base": ({"rope_theta": math.inf}, "rope_theta = inf: a factor is a positive number; "),
    "a base of nothing": ({"rope_theta": 0}, "rope_theta = 0: a factor is a positive number; "),
    "rope in a list": ({"rope_parameters": [1]}, "rope_parameters = [1]: settings are an object of names and values; "),
    "scaling in words": ({"rope_scaling": "linear"}, "rope_scaling = 'linear': settings are an object of names and "),
    "scaling by nothing": (
        {"rope_scaling": {"rope_type": "linear", "factor": None}},
        "factor = None: a factor is a positive number; ",
    ),
    "scaling without its length": (
        {"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}},
        "original_max_position_embeddings = None: a size is a positive whole number; ",
    ),
}


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "tiny"))


def refusal(folder: Path) -> str:
    """What the engine says of a folder: one line of value, rule and what to do."""
    with pytest.raises(CheckpointError) as refused:
        Checkpoint(folder, read_config(folder))
    message = str(refused.value)
    assert message.startswith(str(folder))
    assert "; " in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("what", TENSORS)
def test_tensors(what: str, folder: Path) -> None:
    spoil, said = TENSORS[what]
    save_file(spoil(load_file(folder / WEIGHTS)), folder / WEIGHTS)
    assert said in refusal(folder)


@pytest.mark.parametrize("what", CONFIGS)
def test_configs(what: str, folder: Path) -> None:
    changes, said = CONFIGS[what]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    assert said in refusal(folder)


@pytest.mark.parametrize("content", ["[]", "3", "null", "{", ""])
def test_a_config_that_is_no_object(content: str, folder: Path) -> None:
    (folder / "config.json").write_text(content)
    assert "not a readable config (" in refusal(folder)


@pytest.mark.parametrize("content", [b"", b"weights", b"\x80\x04K\x01.", b"\xff" * 100])
def test_a_file_that_is_no_safetensors(content: bytes, folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(content)
    assert "not a whole safetensors file (" in refusal(folder)


def test_a_file_that_is_cut_off(folder: Path) -> None:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[: len(content) // 2])
    assert "not a whole safetensors file (" in refusal(folder)


def test_a_folder_where_a_file_should_be(folder: Path) -> None:
    (folder / "other.safetensors").mkdir()
    assert "not a whole safetensors file (" in refusal(folder)


def test_a_tensor_that_two_files_hold(folder: Path) -> None:
    save_file({NORM: load_file(folder / WEIGHTS)[NORM] + 1}, folder / "other.safetensors")
    assert f"tensor {NORM} is in another file too; " in refusal(folder)


def test_pickles_are_not_looked_at(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    assert "is missing; " in refusal(folder)

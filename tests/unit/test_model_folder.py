"""Model folders: what the harness reads of a checkpoint without torch, and what it refuses."""

import json
from pathlib import Path

import pytest

from graphcheck.harness.files.model_folder import find_model, open_model
from graphcheck.schema.errors import ModelError
from tests.tiny_model import EOS, make_tiny_llama, words


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_llama(tmp_path / "tiny", num_layers=1)


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))


def test_what_the_harness_reads(folder: Path) -> None:
    model = open_model(folder)
    assert (model.name, model.vocab_size, model.max_context, model.eos_ids) == ("tiny", 211, 256, (EOS,))
    assert model.encode(words(5, 6, EOS)) == (5, 6, EOS)
    assert model.decode((5, 6, EOS)) == words(5, 6, EOS)


def test_several_eos_and_the_generation_config_wins(folder: Path) -> None:
    edit(folder / "config.json", eos_token_id=[7, 3, 7])
    assert open_model(folder).eos_ids == (3, 7)
    edit(folder / "generation_config.json", eos_token_id=4)
    assert open_model(folder).eos_ids == (4,)
    edit(folder / "config.json", eos_token_id=None)
    (folder / "generation_config.json").unlink()
    assert open_model(folder).eos_ids == ()


def test_each_part_of_the_fingerprint_follows_its_files(folder: Path) -> None:
    before = open_model(folder).fingerprint()
    assert list(before) == ["config", "weights", "tokenizer"]

    def changed_parts() -> set[str]:
        after = open_model(folder).fingerprint()
        return {part for part in before if before[part] != after[part]}

    assert changed_parts() == set()
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert changed_parts() == {"weights"}
    edit(folder / "config.json", rms_norm_eps=1e-6)
    assert changed_parts() == {"weights", "config"}
    edit(folder / "tokenizer.json", version="1.1")
    assert changed_parts() == {"weights", "config", "tokenizer"}
    content[-1] ^= 1
    weights.write_bytes(content)
    assert changed_parts() == {"config", "tokenizer"}
    weights.rename(folder / "other.safetensors")
    assert changed_parts() == {"weights", "config", "tokenizer"}


def test_text_that_the_vocabulary_does_not_have(folder: Path) -> None:
    with pytest.raises(ValueError, match="WordLevel"):
        open_model(folder).encode("w1 stranger")
    tokenizer = folder / "tokenizer.json"
    content = json.loads(tokenizer.read_text())
    content["model"]["unk_token"] = "w9"
    tokenizer.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="a piece of it becomes w9"):
        open_model(folder).encode("w1 stranger")
    assert open_model(folder).encode("w1 w9") == (1, 9)


def test_a_folder_without_tokenizer_still_serves_ids(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    model = open_model(folder)
    assert list(model.fingerprint()) == ["config", "weights"]
    assert model.decode((1, 2)) == ""
    with pytest.raises(ModelError, match=r"tokenizer\.json: text prompts need it"):
        model.encode("w1")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer\.json: not a tokenizer"):
        open_model(folder).encode("w1")


def test_pickled_weights_are_refused_by_name(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match=r"no \*\.safetensors \(pytorch_model\.bin would be unpickled\)"):
        open_model(folder)


def test_code_in_the_folder_is_refused(folder: Path) -> None:
    edit(folder / "config.json", auto_map={"AutoModel": "evil.Model"})
    with pytest.raises(ModelError, match="auto_map: code from a model folder is never run"):
        open_model(folder)


def test_a_shard_that_is_missing(folder: Path) -> None:
    edit(folder / "model.safetensors.index.json", weight_map={"a": "model.safetensors", "b": "second.safetensors"})
    with pytest.raises(ModelError, match=r"second\.safetensors: named by"):
        open_model(folder)


@pytest.mark.parametrize(("content", "rule"), [("{", "not JSON"), ("[]", "JSON object"), (None, "cannot be read")])
def test_a_config_that_is_none(folder: Path, content: str | None, rule: str) -> None:
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(ModelError, match=rule):
        open_model(folder)


@pytest.mark.parametrize("value", [None, 0, "211", True])
def test_a_config_without_a_vocabulary(folder: Path, value: object) -> None:
    edit(folder / "config.json", vocab_size=value)
    with pytest.raises(ModelError, match=r"vocab_size = .*positive number"):
        _ = open_model(folder).vocab_size


def test_models_are_found_by_shipped_name_or_folder(folder: Path, tmp_path: Path) -> None:
    assert find_model("probe").path.parent.name == "models"
    assert find_model("tiny", tmp_path).path == folder
    assert find_model(str(folder)).path == folder
    with pytest.raises(ModelError, match=r"no such folder; give a folder, or a shipped model: .*probe"):
        find_model("nothing", tmp_path)


def test_a_folder_with_the_name_of_a_shipped_model_is_never_passed_over(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder.rename(tmp_path / "probe")
    with pytest.raises(
        ModelError, match=r"model 'probe': a shipped model has this name.* write \./probe for the folder"
    ):
        find_model("probe")
    assert find_model("./probe").path.resolve() == tmp_path / "probe"


def test_an_added_model_is_found_by_name_in_models(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=rf"not in {tmp_path}/models; make it with `graphcheck models add smollm2`"):
        find_model("smollm2", tmp_path / "matrices")
    added = make_tiny_llama(tmp_path / "models" / "smollm2", num_layers=1)
    assert find_model("smollm2", tmp_path / "matrices").path == added
    beside = make_tiny_llama(tmp_path / "matrices" / "smollm2", num_layers=1)
    assert find_model("smollm2", tmp_path / "matrices").path == beside, "a path wins over a name"

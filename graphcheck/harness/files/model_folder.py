"""Owns a Hugging Face checkpoint folder as the harness sees it: configuration, tokenizer and identity, no tensors."""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from os.path import isdir, isfile  # unlike Path's, False for what is no file name at all
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from graphcheck import shipped
from graphcheck.models import ADDABLE
from graphcheck.schema.errors import ModelError

DEFAULT_MODELS_DIR = Path("models")
"""Where `graphcheck models add` puts a model, unless told otherwise, and where one is looked up by name."""

_PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class ModelFolder:
    """A checkpoint folder that passed `open_model`. Files are hashed and parsed once, when first asked for."""

    path: Path
    name: str
    config: dict[str, Any] = field(repr=False)
    generation_config: dict[str, Any] = field(repr=False)

    @property
    def vocab_size(self) -> int:
        """Number of real vocabulary rows, padding of the engine not counted."""
        return self._count("vocab_size")

    @property
    def max_context(self) -> int:
        """Most tokens, prompt and output together, that the model has positions for."""
        return self._count("max_position_embeddings")

    @property
    def num_layers(self) -> int:
        return self._count("num_hidden_layers")

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a sequence, ascending; `generation_config.json` wins over `config.json`, as in transformers."""
        eos = self.generation_config.get("eos_token_id", self.config.get("eos_token_id"))
        ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
        if not all(type(one) is int for one in ids):
            raise ModelError(f"{self.path}: eos_token_id = {eos!r}", "a token id or a list of them", "mend the config")
        return tuple(sorted(set(ids)))

    def fingerprint(self) -> dict[str, str]:
        """sha256 (hex) of each part of the folder that can change a token: config, weights and, if any, tokenizer."""
        return dict(self._fingerprint)

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of `text`, with the special tokens that the tokenizer's own template adds.

        Raises:
            ModelError: the folder has no usable tokenizer.json.
            ValueError: a piece of the text is not in the vocabulary.
        """
        tokenizer = self._tokenizer
        try:
            ids = tuple(tokenizer.encode(text).ids)
        except Exception as failure:  # the tokenizers package raises bare Exception
            raise ValueError(str(failure)) from None
        unknown = getattr(tokenizer.model, "unk_token", None)
        if unknown is not None and tokenizer.token_to_id(unknown) in ids and unknown not in text:
            raise ValueError(f"a piece of it becomes {unknown}")
        return ids

    def decode(self, ids: tuple[int, ...]) -> str:
        """Text of `ids`, special tokens shown; empty for a folder without tokenizer."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False)) if self._has_tokenizer else ""

    def _count(self, key: str) -> int:
        value = self.config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise ModelError(
                f"{self.path / 'config.json'}: {key} = {value!r}",
                "a text model states it as a positive number",
                "give a checkpoint of a supported text model",
            )
        return value

    @property
    def _has_tokenizer(self) -> bool:
        return (self.path / "tokenizer.json").is_file()

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        path = self.path / "tokenizer.json"
        if not self._has_tokenizer:
            raise ModelError(str(path), "text prompts need it and it is missing", "add it, or give prompts as ids")
        try:
            return Tokenizer.from_file(str(path))
        except Exception as failure:  # the tokenizers package raises bare Exception
            raise ModelError(str(path), f"not a tokenizer ({failure})", "save the tokenizer again") from None

    @cached_property
    def _fingerprint(self) -> dict[str, str]:
        configs = [self.path / "config.json", self.path / "generation_config.json"]
        parts = {
            "config": [path for path in configs if path.is_file()],
            "weights": sorted(self.path.glob("*.safetensors")),
            "tokenizer": [self.path / "tokenizer.json"] if self._has_tokenizer else [],
        }
        return {part: _sha256(files) for part, files in parts.items() if files}


def find_model(name_or_folder: str, relative_to: Path = Path()) -> ModelFolder:
    """The shipped model of that name, else the checkpoint folder at that path, else the one of that name in `models/`.

    Raises:
        ModelError: no such model, two of that name, or the folder cannot be used.
    """
    shipped_folder = shipped.models_dir() / name_or_folder
    folder = relative_to / name_or_folder
    if Path(name_or_folder).name == name_or_folder and isfile(shipped_folder / "config.json"):
        if isfile(folder / "config.json") and folder.resolve() != shipped_folder.resolve():
            rule = f"a shipped model has this name, and so has the folder {folder}"
            raise ModelError(
                f"model {name_or_folder!r}", rule, f"write ./{name_or_folder} for the folder, or rename it"
            )
        return open_model(shipped_folder)
    found = next((path for path in (folder, DEFAULT_MODELS_DIR / name_or_folder) if isdir(path)), None)
    if found is None and name_or_folder in ADDABLE:
        raise ModelError(
            f"model {name_or_folder!r}",
            f"does not come with graphcheck and is not in {DEFAULT_MODELS_DIR.resolve()}",
            f"make it with `graphcheck models add {name_or_folder}`, or give its folder",
        )
    if found is None:
        names = ", ".join(sorted(config.parent.name for config in shipped.models_dir().glob("*/config.json")))
        raise ModelError(f"model {str(folder)!r}", "no such folder", f"give a folder, or a shipped model: {names}")
    return open_model(found)


def open_model(folder: Path) -> ModelFolder:
    """A checkpoint folder, checked to be safetensors without code of its own.

    Raises:
        ModelError: config.json or the weights are missing or unreadable, weights are pickled, or code is asked for.
    """
    folder = folder.resolve()
    config = _read_json(folder / "config.json", required=True)
    generation_config = _read_json(folder / "generation_config.json", required=False)
    if "auto_map" in config:
        raise ModelError(
            f"{folder / 'config.json'}: auto_map",
            "code from a model folder is never run",
            "give a checkpoint whose architecture is built in",
        )
    if not any(folder.glob("*.safetensors")):
        pickled = sorted(path.name for pattern in _PICKLED for path in folder.glob(pattern))
        found = f" ({', '.join(pickled)} would be unpickled)" if pickled else ""
        raise ModelError(str(folder), f"holds no *.safetensors{found}", "save the weights as safetensors")
    _check_index(folder / "model.safetensors.index.json")
    return ModelFolder(folder, folder.name, config, generation_config)


def _check_index(path: Path) -> None:
    index = _read_json(path, required=False)
    weight_map = index.get("weight_map", {})
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise ModelError(f"{path}: weight_map", "maps each tensor to the name of its file", "save the checkpoint again")
    for name in sorted(set(weight_map.values())):
        if not isfile(path.parent / name):
            raise ModelError(str(path.parent / name), f"named by {path.name} and missing", "add the file")


def _read_json(path: Path, *, required: bool) -> dict[str, Any]:
    if not required and not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except OSError as failure:
        raise ModelError(str(path), f"cannot be read ({failure.strerror})", "give a checkpoint folder") from None
    except (ValueError, RecursionError) as failure:
        raise ModelError(str(path), f"not JSON ({failure})", "save the checkpoint again") from None
    if not isinstance(content, dict):
        raise ModelError(str(path), "must hold a JSON object", "save the checkpoint again")
    return content


def _sha256(files: list[Path]) -> str:
    """One hash over names and contents, read in pieces: a checkpoint may be larger than memory."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()

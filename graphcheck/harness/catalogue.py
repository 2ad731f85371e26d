"""Owns what there is to choose from: matrices, suites, models, targets, fixes, settings; each with a line."""

from collections.abc import Callable

from graphcheck import shipped
from graphcheck.harness.files.matrix_file import load_matrix
from graphcheck.harness.files.suite_file import load_suite
from graphcheck.models import ADDABLE
from graphcheck.schema.capabilities import AxisSpec
from graphcheck.targets.registry import TARGETS, load_target


def catalogue(kind: str) -> list[tuple[str, str]]:
    """(name, description) of everything of a kind; `kind` is one of KINDS."""
    return KINDS[kind]()


def _matrices() -> list[tuple[str, str]]:
    names = sorted(path.stem for path in shipped.matrices_dir().glob("*.toml"))
    return [(name, load_matrix(name).matrix.title) for name in names]


def _suites() -> list[tuple[str, str]]:
    folder = shipped.matrices_dir()
    names = sorted(path.stem for path in (folder / "suites").glob("*.toml"))
    return [(name, load_suite(name, folder / "any.toml").suite.title) for name in names]


def _models() -> list[tuple[str, str]]:
    folders = sorted(config.parent for config in shipped.models_dir().glob("*/config.json"))
    addable = [(name, f"{model.title}; made by `graphcheck models add {name}`") for name, model in ADDABLE.items()]
    return [(folder.name, str(folder)) for folder in folders] + addable


def _targets() -> list[tuple[str, str]]:
    return [(name, TARGETS[name].partition(":")[0]) for name in sorted(TARGETS)]


def _fixes() -> list[tuple[str, str]]:
    return [
        (fix.name, f"{target}: {fix.promise}; off: {fix.off_means}")
        for target in sorted(TARGETS)
        for fix in load_target(target).describe().fixes
    ]


def _settings() -> list[tuple[str, str]]:
    return [
        (axis.name, f"{target}: {_values(axis)}, default {axis.default}; {axis.help}")
        for target in sorted(TARGETS)
        for axis in load_target(target).describe().axes
    ]


def _values(axis: AxisSpec) -> str:
    if axis.choices is not None:
        return " | ".join(map(str, axis.choices))
    return f"a number, {axis.minimum} or more" if axis.kind == "int" else "a word"


KINDS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "matrices": _matrices,
    "suites": _suites,
    "models": _models,
    "targets": _targets,
    "fixes": _fixes,
    "settings": _settings,
}

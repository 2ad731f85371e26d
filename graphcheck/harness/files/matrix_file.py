"""Owns finding and reading a matrix file; what its axes mean to a target is the plan's business."""

from dataclasses import dataclass
from pathlib import Path

from graphcheck import shipped
from graphcheck.harness.files.toml_file import TomlFile
from graphcheck.schema.errors import MatrixError
from graphcheck.schema.matrix import Matrix

RESERVED_AXES = {"model": "models", "suite": "suites"}
"""Axes that a matrix gets from its own keys, when they hold more than one entry."""


@dataclass(frozen=True)
class LoadedMatrix:
    """A valid matrix with its name and the file it came from; `typed` is what a command line calls it."""

    name: str
    typed: str
    path: Path
    matrix: Matrix
    file: TomlFile


def load_matrix(name_or_path: str) -> LoadedMatrix:
    """The shipped matrix of that name, or the matrix file at that path (anything with a folder or `.toml` in it).

    Raises:
        MatrixError: no such matrix, or the file breaks a rule.
    """
    path = _find(name_or_path)
    file = TomlFile.read(path, MatrixError)
    matrix = file.record(Matrix)
    _check_entries(file, matrix)
    return LoadedMatrix(path.stem, name_or_path, path, matrix, file)


def _check_entries(file: TomlFile, matrix: Matrix) -> None:
    for key, entries in (("models", matrix.models), ("suites", matrix.suites)):
        if len(set(entries)) < len(entries):
            raise file.wrong((key,), "an entry is given twice", "leave one of them out")
    for axis, values in matrix.axes.items():
        if axis in RESERVED_AXES:
            key = RESERVED_AXES[axis]
            raise file.wrong(("axes", axis), f"`{key}` makes this axis", f"list the entries in `{key}` instead")
        if not values:
            raise file.wrong(("axes", axis), "an axis needs at least one value", "add a value or leave the axis out")
        if len(set(values)) < len(values):
            raise file.wrong(("axes", axis), "a value is given twice", "leave one of them out")
        if axis in matrix.settings:
            raise file.wrong(("settings", axis), "this setting is also an axis", "leave one of them out")
    for number, cell in enumerate(matrix.extra_cells):
        for axis in matrix.axes:
            if axis not in cell:
                raise file.wrong(
                    ("extra_cells", number), f"an extra cell gives every axis, {axis} too", "add the value"
                )
        for axis in RESERVED_AXES:
            if axis in cell:
                raise file.wrong(
                    ("extra_cells", number, axis), "extra cells run with every model and suite", "remove it"
                )


def _find(name_or_path: str) -> Path:
    path = Path(name_or_path)
    if path.suffix == ".toml" or len(path.parts) != 1:
        return path
    names = sorted(file.stem for file in shipped.matrices_dir().glob("*.toml"))
    if name_or_path not in names:
        raise MatrixError(
            f"matrix {name_or_path!r}",
            "no shipped matrix has that name",
            f"choose one of {', '.join(names)}, or give the path of a .toml file",
        )
    return shipped.matrices_dir() / f"{name_or_path}.toml"

"""Owns whether the goldens on disk are in order: readable, used by some matrix, made for what they are used for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcheck import shipped
from graphcheck.harness.golden.calibration_store import SUFFIX as CALIBRATION_SUFFIX
from graphcheck.harness.golden.calibration_store import find_calibrations
from graphcheck.harness.golden.pending import SUFFIX
from graphcheck.harness.golden.store import (
    DEFAULT_GOLDEN_DIR,
    find_golden,
    golden_folders,
    golden_name,
    load_golden,
    read_golden,
    wanted_golden_dir,
)
from graphcheck.harness.planning.matrix_file import LoadedMatrix, load_matrix
from graphcheck.harness.planning.model_folder import find_model
from graphcheck.harness.planning.resolve import resolve
from graphcheck.harness.planning.suite_file import load_suite
from graphcheck.models import ADDABLE
from graphcheck.schema.errors import GoldenError, ModelError
from graphcheck.schema.golden import Calibration, Golden, GoldenHeader


@dataclass(frozen=True)
class Use:
    """A golden that a matrix uses; `entry` is the model as the matrix file names it."""

    matrix: LoadedMatrix
    entry: str
    suite: str
    dtype: str

    @property
    def name(self) -> Path:
        return golden_name(Path(self.entry).name, self.suite, self.dtype)


@dataclass(frozen=True)
class Listed:
    """A golden file: what it holds, or why it cannot be used; the matrices that use it; whether a change waits.

    `calibrations` are those that lie beside it, if they are of this golden and readable.
    """

    path: Path
    golden: Golden | None
    problem: str | None
    matrices: tuple[str, ...]
    is_pending: bool
    calibrations: tuple[Calibration, ...]


@dataclass(frozen=True)
class Checked:
    """What `golden check` found: `problems` are red; `unchecked` could not be looked at here."""

    num_files: int
    num_uses: int
    problems: tuple[str, ...]
    unchecked: tuple[str, ...]


def known_matrices(named: Sequence[str]) -> list[LoadedMatrix]:
    """The named ones, then the shipped ones.

    Raises:
        MatrixError: one that is named does not exist, or breaks a rule.
    """
    names = [*named, *sorted(path.stem for path in shipped.matrices_dir().glob("*.toml"))]
    loaded = {matrix.path.resolve(): matrix for matrix in map(load_matrix, names)}
    return list(loaded.values())


def matrices_of(
    header: GoldenHeader, matrices: Sequence[LoadedMatrix], *, any_model: bool = False
) -> list[LoadedMatrix]:
    """Those that use a golden; with `any_model` those that would, given the model."""

    def fits(use: Use) -> bool:
        return (any_model or Path(use.entry).name == header.model_name) and (use.suite, use.dtype) == (
            header.suite,
            header.dtype,
        )

    return [matrix for matrix in matrices if any(fits(use) for use in _uses(matrix))]


def list_goldens(golden_dir: Path | None, matrices: Sequence[LoadedMatrix]) -> list[Listed]:
    """Every golden of the user's folder and of the shipped one, in order of folder and path.

    Raises:
        UsageError: a folder of goldens was asked for that is none.
    """
    users: dict[Path, list[str]] = {}
    for matrix in matrices:
        for use in _uses(matrix):
            users.setdefault(use.name, []).append(matrix.name)
    listed = []
    for folder, path in _files(wanted_golden_dir(golden_dir)):
        golden, problem = None, None
        try:
            golden = read_golden(path)
        except GoldenError as error:
            problem = str(error)
        names = tuple(dict.fromkeys(users.get(path.relative_to(folder), ())))
        pending = path.with_name(path.name + SUFFIX).is_file()
        listed.append(Listed(path, golden, problem, names, pending, _calibrations(golden, folder)))
    return listed


def _calibrations(golden: Golden | None, folder: Path) -> tuple[Calibration, ...]:
    """What `golden check` has to say of a calibration that cannot be used, the list leaves out."""
    try:
        found = find_calibrations(golden.header, [folder]) if golden is not None else None
    except GoldenError:
        return ()
    return found.calibrations if found is not None else ()


def check_goldens(golden_dir: Path | None, matrices: Sequence[LoadedMatrix]) -> Checked:
    """Reads every golden, and looks up every golden that a matrix uses as a run would.

    Raises:
        SuiteError, ModelError: a matrix names a suite or a model that cannot be used.
    """
    listed = list_goldens(golden_dir, matrices)
    problems = [one.problem for one in listed if one.problem]
    problems += [
        f"{one.path}: no known matrix uses it; remove it, or name its matrix" for one in listed if not one.matrices
    ]
    problems += [
        f"{pending}: not reviewed; `graphcheck golden diff`, then accept or reject it"
        for folder in _folders(golden_dir or DEFAULT_GOLDEN_DIR)
        for pending in sorted(folder.glob(f"*/*.jsonl{SUFFIX}"))
    ]
    problems += [
        problem
        for folder in _folders(golden_dir or DEFAULT_GOLDEN_DIR)
        for path in sorted(folder.glob(f"*/*{CALIBRATION_SUFFIX}"))
        if (problem := _calibration_problem(path, _folders(golden_dir or DEFAULT_GOLDEN_DIR)))
    ]
    uses = {(use.matrix.path.parent, use.entry, use.suite, use.dtype): use for m in matrices for use in _uses(m)}
    unchecked = []
    for use in uses.values():
        try:
            problem = _problem(use, golden_dir or DEFAULT_GOLDEN_DIR)
        except ModelError as error:
            if use.entry not in ADDABLE:
                raise
            unchecked.append(str(error))
            continue
        if problem and problem not in problems:
            problems.append(problem)
    return Checked(len(listed), len(uses), tuple(problems), tuple(unchecked))


def _calibration_problem(path: Path, folders: Sequence[Path]) -> str | None:
    """A calibration is in order if it is readable and runs find the golden that it was measured against."""
    golden_path = find_golden(path.relative_to(path.parents[1]).with_suffix(".jsonl"), folders)
    try:
        if golden_path is None:
            return f"{path}: no golden of that name is in any golden folder; remove it"
        find_calibrations(read_golden(golden_path).header, [path.parents[1]])
    except GoldenError as error:
        return str(error)
    return None


def _problem(use: Use, golden_dir: Path) -> str | None:
    model = find_model(use.entry, use.matrix.path.parent)
    suite = load_suite(use.suite, use.matrix.path)
    try:
        golden = load_golden(model, suite, use.dtype, golden_folders(golden_dir, use.matrix.path))
        resolve(suite, model, golden)
    except GoldenError as error:
        return str(error)
    return None


def _uses(loaded: LoadedMatrix) -> Iterator[Use]:
    """By what the file says alone, so that a model that is not here is no obstacle."""
    matrix = loaded.matrix
    fixed = matrix.settings.get("dtype", "float32")
    dtypes = dict.fromkeys([*matrix.axes.get("dtype", (fixed,)), *(c.get("dtype", fixed) for c in matrix.extra_cells)])
    for entry in matrix.models:
        for suite in matrix.suites:
            yield from (Use(loaded, entry, suite, str(dtype)) for dtype in dtypes)


def _files(golden_dir: Path) -> Iterator[tuple[Path, Path]]:
    for folder in _folders(golden_dir):
        yield from ((folder, path) for path in sorted(folder.glob("*/*.jsonl")))


def _folders(golden_dir: Path) -> list[Path]:
    """The shipped folder and the user's, once if they are the same."""
    return list({folder.resolve(): folder for folder in (shipped.golden_dir(), golden_dir)}.values())

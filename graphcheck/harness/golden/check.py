"""Owns whether the goldens on disk are in order: readable, used by some matrix, made for what they are used for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from graphcheck import shipped
from graphcheck.harness.files.calibration_store import SUFFIX as CALIBRATION_SUFFIX
from graphcheck.harness.files.calibration_store import find_calibrations
from graphcheck.harness.files.golden_store import (
    golden_folders,
    golden_name,
    load_golden,
    read_golden,
    wanted_golden_dir,
)
from graphcheck.harness.files.matrix_file import LoadedMatrix, load_matrix
from graphcheck.harness.files.model_folder import find_model
from graphcheck.harness.files.suite_file import load_suite
from graphcheck.harness.golden.pending import SUFFIX
from graphcheck.harness.planning.golden_commands import calibrate_command, regen_command
from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.planning.resolve import resolve
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
    problem: GoldenError | None
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
    """Every golden in the folders in which runs of these matrices look, in order of folder and path.

    Raises:
        UsageError: a folder of goldens was asked for that is none.
    """
    home = wanted_golden_dir(golden_dir)
    users: dict[Path, list[str]] = {}
    for matrix in matrices:
        for folder, use in product(golden_folders(home, matrix.path), _uses(matrix)):
            users.setdefault((folder / use.name).resolve(), []).append(matrix.name)
    listed = []
    for path in _files(_folders(home, matrices), "*.jsonl"):
        golden, problem = None, None
        try:
            golden = read_golden(path)
        except GoldenError as error:
            problem = error
        names = tuple(dict.fromkeys(users.get(path.resolve(), ())))
        pending = path.with_name(path.name + SUFFIX).is_file()
        listed.append(Listed(path, golden, problem, names, pending, _calibrations(golden, path.parents[1])))
    return listed


def _calibrations(golden: Golden | None, folder: Path) -> tuple[Calibration, ...]:
    """What `golden check` has to say of a calibration that cannot be used, the list leaves out."""
    try:
        found = find_calibrations(golden.header, [folder]) if golden is not None else None
    except GoldenError:
        return ()
    return found.calibrations if found is not None else ()


def check_goldens(golden_dir: Path | None, matrices: Sequence[LoadedMatrix]) -> Checked:
    """Reads every golden and calibration, and looks up those that a matrix uses as a run would.

    Raises:
        UsageError: a folder of goldens was asked for that is none.
        SuiteError, ModelError: a matrix names a suite or a model that cannot be used.
    """
    home = wanted_golden_dir(golden_dir)
    folders = _folders(home, matrices)
    listed = list_goldens(golden_dir, matrices)
    problems = [one.problem for one in listed if one.problem]
    problems += [
        GoldenError(str(one.path), "no known matrix uses it", "remove it, or name its matrix")
        for one in listed
        if not one.matrices
    ]
    problems += [
        GoldenError(str(path), "not reviewed", "`graphcheck golden diff` with this path, then accept or reject it")
        for path in _files(folders, f"*.jsonl{SUFFIX}")
    ]
    problems += [
        problem for path in _files(folders, f"*{CALIBRATION_SUFFIX}") if (problem := _calibration_problem(path, listed))
    ]
    uses = {(use.matrix.path.parent, use.entry, use.suite, use.dtype): use for m in matrices for use in _uses(m)}
    unchecked = []
    for use in uses.values():
        try:
            problems += filter(None, [_problem(use, RunRequest(matrix=use.matrix.typed, golden_dir=golden_dir))])
        except ModelError as error:
            if use.entry not in ADDABLE:
                raise
            unchecked.append(str(error))
    # What is wrong with a file is seen in the file, and again in each use of it, which knows what makes it again.
    told = {(problem.value, problem.rule): str(problem) for problem in problems}
    return Checked(len(listed), len(uses), tuple(told.values()), tuple(unchecked))


def _calibration_problem(path: Path, listed: Sequence[Listed]) -> GoldenError | None:
    """What is wrong with a calibration by itself: it must be of a golden that is here, wherever that lies.

    Whether a run finds one for the golden that it finds is for `_problem` to say.
    """
    name = (path.parent.name, path.stem)
    goldens = [one.golden for one in listed if (one.path.parent.name, one.path.stem) == name]
    if not goldens:
        return GoldenError(str(path), "no golden of that name is in any golden folder", "remove it")
    reasons = [_why_not_of(golden, path) for golden in goldens if golden is not None]
    return None if None in reasons else next(iter(reasons), None)


def _why_not_of(golden: Golden, calibration: Path) -> GoldenError | None:
    try:
        find_calibrations(golden.header, [calibration.parents[1]])
    except GoldenError as error:
        return error
    return None


def _problem(use: Use, request: RunRequest) -> GoldenError | None:
    """Why a run as requested would not start the cells of this use, in the run's own words."""
    model = find_model(use.entry, use.matrix.path.parent)
    suite = load_suite(use.suite, use.matrix.path)
    folders = golden_folders(wanted_golden_dir(request.golden_dir), use.matrix.path)
    regen = regen_command(request)
    try:
        golden = load_golden(model, suite, use.dtype, folders, regen)
        find_calibrations(golden.header, folders, calibrate_command(request))
        resolve(suite, model, golden, regen=regen)
    except GoldenError as error:
        return error
    return None


def _uses(loaded: LoadedMatrix) -> Iterator[Use]:
    """By what the file says alone, so that a model that is not here is no obstacle."""
    matrix = loaded.matrix
    fixed = matrix.settings.get("dtype", "float32")
    dtypes = dict.fromkeys([*matrix.axes.get("dtype", (fixed,)), *(c.get("dtype", fixed) for c in matrix.extra_cells)])
    for entry in matrix.models:
        for suite in matrix.suites:
            yield from (Use(loaded, entry, suite, str(dtype)) for dtype in dtypes)


def _files(folders: Sequence[Path], pattern: str) -> Iterator[Path]:
    """The files in the models' folders whose name matches `pattern`, in order of folder and path."""
    for folder in folders:
        yield from sorted(folder.glob(f"*/{pattern}"))


def _folders(golden_dir: Path, matrices: Sequence[LoadedMatrix]) -> tuple[Path, ...]:
    """Wherever a run of one of these matrices looks for goldens."""
    return golden_folders(golden_dir, *(matrix.path for matrix in matrices))

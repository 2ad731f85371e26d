"""Owns telling which cells of a matrix this machine can run, and why not the others. Starts no rank."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from graphcheck.harness.files.matrix_file import LoadedMatrix, load_matrix
from graphcheck.harness.golden.check import known_matrices
from graphcheck.harness.machine.devices import DeviceCheck, count_in
from graphcheck.harness.planning.plan import PlannedAttempt, plan_attempts
from graphcheck.harness.planning.prepare import Ready, Unready, prepare
from graphcheck.harness.planning.request import Plan, RunRequest
from graphcheck.schema.errors import ModelError, UsageError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.inventory import Inventory
from graphcheck.targets.base import Target
from graphcheck.targets.registry import load_target

LoadTarget = Callable[[str], Target]


@dataclass(frozen=True)
class CellCheck:
    """A cell, and everything that keeps it from running here."""

    name: str
    obstacles: tuple[str, ...]


@dataclass(frozen=True)
class MatrixCheck:
    """The cells of a matrix; none where `obstacle` keeps all of them from running, so that they were not looked at."""

    name: str
    cells: tuple[CellCheck, ...] = ()
    obstacle: str = ""

    @property
    def num_runnable(self) -> int:
        return sum(not cell.obstacles for cell in self.cells)


@dataclass(frozen=True)
class Diagnosis:
    """A machine against matrices: the one that was asked for, else every shipped one."""

    inventory: Inventory
    asked: str | None
    matrices: tuple[MatrixCheck, ...]

    @property
    def exit_code(self) -> ExitCode:
        """0 if every cell can run, 5 if none can, 8 if some cannot."""
        if not any(matrix.num_runnable for matrix in self.matrices):
            return ExitCode.VACUOUS
        some_cannot = any(matrix.obstacle or matrix.num_runnable < len(matrix.cells) for matrix in self.matrices)
        return ExitCode.INCOMPLETE if some_cannot else ExitCode.PASS


def diagnose(asked: str | None, inventory: Inventory, load: LoadTarget = load_target) -> Diagnosis:
    """Looks at every cell of the matrix `asked` for (a name or a path), or of every shipped matrix.

    Raises:
        UsageError: a matrix or suite file that cannot be used anywhere.
    """
    matrices = known_matrices(()) if asked is None else [load_matrix(asked)]
    return Diagnosis(inventory, asked, tuple(_check(matrix, inventory, load) for matrix in matrices))


def _check(loaded: LoadedMatrix, inventory: Inventory, load: LoadTarget) -> MatrixCheck:
    target = load(loaded.matrix.target)
    capabilities = target.describe()
    devices = DeviceCheck(capabilities, lambda kind: count_in(inventory, kind))
    try:
        plan = Plan(loaded, target, capabilities, plan_attempts(loaded, capabilities))
        prepared = prepare(plan, RunRequest(matrix=str(loaded.path)))
    except ModelError as error:
        return MatrixCheck(loaded.name, obstacle=str(error))
    cells = (CellCheck(one.planned.attempt.cell.name, tuple(_obstacles(one, target, devices))) for one in prepared)
    return MatrixCheck(loaded.name, tuple(cells))


def _obstacles(one: Ready | Unready, target: Target, devices: DeviceCheck) -> Iterator[str]:
    if objection := _objection(one.planned, target):
        yield objection
    if lack := devices.lack(one.planned.settings, one.planned.asked):
        yield lack
    if isinstance(one, Unready):
        yield one.reason


def _objection(planned: PlannedAttempt, target: Target) -> str | None:
    """What the target says against these settings, with which no run of the cell would start."""
    try:
        target.check(planned.settings)
    except UsageError as error:
        return str(error)
    return None

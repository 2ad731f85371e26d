"""Owns telling apart what moved when the environment changed: the reference, the engine, or both alike."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcheck.harness.files.matrix_file import LoadedMatrix
from graphcheck.harness.golden.check import matrices_of
from graphcheck.harness.golden.pending import Pending
from graphcheck.harness.planning.request import RunRequest, make_plan
from graphcheck.harness.running.execute import Surroundings
from graphcheck.harness.running.run_matrix import run_matrix
from graphcheck.schema.errors import UsageError
from graphcheck.schema.exit_codes import MEANING, ExitCode
from graphcheck.schema.golden import GoldenHeader

_ANSWERS = (ExitCode.PASS, ExitCode.TOKENS, ExitCode.HANG, ExitCode.CRASH)
"""What tells something of the engine; a cell that was skipped, say for want of a device, tells nothing."""


@dataclass(frozen=True)
class Movement:
    """Against the old golden, in the new environment. `engine_exit` is how the engine's run of it ended."""

    reference: bool
    engine_exit: ExitCode
    cell: str

    @property
    def engine(self) -> bool:
        return self.engine_exit is not ExitCode.PASS

    @property
    def both(self) -> bool:
        """A regression that the two share would accept itself."""
        return self.reference and self.engine

    def __str__(self) -> str:
        moved = "both" if self.both else "reference" if self.reference else "engine" if self.engine else "neither"
        return f"{moved} moved (engine against the old golden, {self.cell}: {MEANING[self.engine_exit]})"


def what_moved(
    pending: Pending,
    matrices: Sequence[LoadedMatrix],
    model: str | None = None,
    surroundings: Surroundings | None = None,
) -> Movement | None:
    """Runs the engine, in one cell, against the old golden; None unless the environment alone has changed.

    Args:
        matrices: where a cell that uses the golden is looked for.
        model: the folder of a model that none of them names.

    Raises:
        UsageError: no matrix can run the golden here, or its model is another one.
    """
    against = pending.review
    if not against.environment_changed or pending.old is None:
        return None
    surroundings = surroundings or Surroundings()
    for matrix in matrices_of(against.new.header, matrices, any_model=model is not None):
        cell = _first_cell(against.new.header, matrix, model, surroundings)
        code = _run_cell(matrix, model, cell, pending.old.parents[1], surroundings)
        if code in _ANSWERS:
            return Movement(against.moved, code, cell)
    raise UsageError(
        str(pending.path),
        "the environment has changed and no known matrix can run this golden here, so the engine cannot be asked",
        "name one with --matrix, and the model's folder with --model if it is not the matrix's",
    )


def _run_cell(
    matrix: LoadedMatrix, model: str | None, cell: str, golden_dir: Path, surroundings: Surroundings
) -> ExitCode:
    with tempfile.TemporaryDirectory(prefix="graphcheck-moved-") as folder:
        request = RunRequest(
            matrix=str(matrix.path), model=model, golden_dir=golden_dir, run_dir=Path(folder) / "run", select=cell
        )
        return run_matrix(request, surroundings=surroundings).exit_code


def _first_cell(header: GoldenHeader, matrix: LoadedMatrix, model: str | None, surroundings: Surroundings) -> str:
    """What selects the matrix's first cell with this golden: the plainest one, as matrices are written."""
    plan = make_plan(RunRequest(matrix=str(matrix.path), model=model), surroundings.load_target)
    plan.target.close()
    wanted = (header.model_name, header.suite, header.dtype)
    first = next((one for one in plan.attempts if (one.model.name, one.suite.name, one.dtype) == wanted), None)
    if first is None:
        raise UsageError(f"model {model}", f"is not {header.model_name}", "give the folder of that name")
    return " and ".join(f"{axis}={value}" for axis, value in first.attempt.cell.axes.items())

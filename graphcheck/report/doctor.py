"""Owns how a diagnosis looks in a terminal: the machine, what it can run, and what to do next."""

import shlex
from collections.abc import Iterator

from rich.console import Console

from graphcheck.harness.doctor import Diagnosis, MatrixCheck
from graphcheck.harness.machine.devices import count_in
from graphcheck.harness.machine.environment import environment
from graphcheck.report import words
from graphcheck.report.terminal import RED, print_line
from graphcheck.schema.errors import DeviceError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.inventory import Gpu, Inventory

_MIB_PER_GIB = 1024

_LAST: dict[ExitCode, str] = {
    ExitCode.PASS: "every cell can run here; next: `graphcheck run matrix {matrix}`",
    ExitCode.INCOMPLETE: "some cells cannot run here; next: do what stands beside them, or run the others: "
    "`graphcheck run matrix {matrix} -k EXPR`",
    ExitCode.VACUOUS: "no cell can run here; next: do what stands beside them",
}


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> ExitCode:
    """Prints it, cell by cell if one matrix was asked for, and returns its exit code."""
    for warning in words.warnings(environment()):
        print_line(console, warning, "yellow")
    for name, value in _machine(diagnosis.inventory):
        print_line(console, f"{name:12} {value}")
    for matrix in diagnosis.matrices:
        _print_matrix(matrix, console, is_brief=diagnosis.asked is None)
    code = diagnosis.exit_code
    last = _LAST[code].format(matrix=shlex.quote(diagnosis.asked or "NAME"))
    print_line(console, f"exit {int(code)}: {last}", "green" if code is ExitCode.PASS else RED)
    return code


def _machine(inventory: Inventory) -> Iterator[tuple[str, str]]:
    torch = inventory.torch
    yield "python", inventory.python
    if torch is None:
        yield "torch", f"cannot be asked: {inventory.problem}"
    else:
        yield "torch", f"{torch.version}, {f'built for CUDA {torch.cuda}' if torch.cuda else 'a CPU build'}"
        yield "NCCL", torch.nccl or "none"
        yield "triton", torch.triton or "does not import"
    yield "driver", inventory.driver or "none"
    if inventory.visible is not None:
        yield "visible", f"CUDA_VISIBLE_DEVICES={inventory.visible}"
    try:
        count_in(inventory, "cuda")
    except DeviceError as error:
        yield "GPUs", f"none: {error.rule}; {error.todo}"
    for gpu in torch.gpus if torch is not None else ():
        yield f"GPU {gpu.index}", _gpu(gpu)
    yield "cores", str(inventory.cores)
    yield "/dev/shm", f"{_gib(inventory.shm_mib)}, {_gib(inventory.shm_free_mib)} free"


def _gpu(gpu: Gpu) -> str:
    free = "free memory unknown" if gpu.free_mib is None else f"{_gib(gpu.free_mib)} free"
    peers = f"reaches GPU {', '.join(map(str, gpu.peers))}" if gpu.peers else "reaches no other GPU"
    return f"{gpu.name}, {_gib(gpu.total_mib)}, {free}, compute capability {gpu.capability}, {peers}"


def _gib(mib: int) -> str:
    return f"{mib / _MIB_PER_GIB:.1f} GiB"


def _print_matrix(matrix: MatrixCheck, console: Console, *, is_brief: bool) -> None:
    if matrix.obstacle:
        print_line(console, f"{matrix.name:12} no cell can run: {matrix.obstacle}", RED)
        return
    all_can = matrix.num_runnable == len(matrix.cells)
    line = f"{matrix.name:12} {matrix.num_runnable}/{len(matrix.cells)} cells can run"
    print_line(console, line, "green" if all_can else RED)
    for cells, text in _by_obstacle(matrix) if is_brief else _by_cell(matrix):
        print_line(console, f"  {cells}  {text}")


def _by_cell(matrix: MatrixCheck) -> Iterator[tuple[str, str]]:
    for cell in matrix.cells:
        if not cell.obstacles:
            yield cell.name, "can run"
        for obstacle in cell.obstacles:
            yield cell.name, f"cannot run: {obstacle}"


def _by_obstacle(matrix: MatrixCheck) -> Iterator[tuple[str, str]]:
    """Cells that something keeps from running; those with the same obstacle share a line."""
    kept: dict[str, list[str]] = {}
    for cell in matrix.cells:
        for obstacle in cell.obstacles:
            kept.setdefault(obstacle, []).append(cell.name)
    for obstacle, cells in kept.items():
        yield words.names(cells), obstacle

"""The doctor: which cells a machine can run, everything that keeps the others from it, and the exit code."""

import io
from collections.abc import Mapping

import pytest
from rich.console import Console

from graphcheck.harness.doctor import Diagnosis, diagnose
from graphcheck.report.doctor import print_diagnosis
from graphcheck.schema.base import AxisValue
from graphcheck.schema.errors import MatrixError, UsageError
from graphcheck.schema.inventory import Gpu, Inventory, TorchView
from graphcheck.targets.fake import FakeTarget
from tests.fake_world import FakeWorld

GPUS = (
    Gpu(index=0, name="NVIDIA H200", capability="9.0", total_mib=143360, free_mib=142336, peers=(1,)),
    Gpu(index=1, name="NVIDIA H200", capability="9.0", total_mib=143360),
)
MACHINE = Inventory(
    python="3.12.3",
    cores=32,
    shm_mib=65536,
    shm_free_mib=32768,
    num_nvidia_devices=2,
    driver="580.159.04",
    torch=TorchView(version="2.11.0+cu130", cuda="13.0", nccl="2.28.9", triton="3.6.0", gpus=GPUS),
)
BARE = Inventory(python="3.12.3", cores=2, shm_mib=64, shm_free_mib=64, problem="python failed with status 1: no torch")


class Choosy(FakeTarget):
    def check(self, settings: Mapping[str, AxisValue]) -> None:
        if settings["fault"] == "drift":
            raise UsageError("fault = drift", "this target never drifts", "choose another")


def examine(asked: str | None, inventory: Inventory = MACHINE) -> Diagnosis:
    return diagnose(asked, inventory, lambda name: Choosy())


def printed(diagnosis: Diagnosis) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    assert print_diagnosis(diagnosis, console) is diagnosis.exit_code
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_machine_that_can_run_every_cell_says_so_cell_by_cell(fake_world: FakeWorld) -> None:
    fake_world.matrix(tp=[1, 2], settings={"device": "cuda"})
    assert printed(examine("m.toml")) == [
        "python       3.12.3",
        "torch        2.11.0+cu130, built for CUDA 13.0",
        "NCCL         2.28.9",
        "triton       3.6.0",
        "driver       580.159.04",
        "GPU 0        NVIDIA H200, 140.0 GiB, 139.0 GiB free, compute capability 9.0, reaches GPU 1",
        "GPU 1        NVIDIA H200, 140.0 GiB, free memory unknown, compute capability 9.0, reaches no other GPU",
        "cores        32",
        "/dev/shm     64.0 GiB, 32.0 GiB free",
        "m            2/2 cells can run",
        "  tp1  can run",
        "  tp2  can run",
        "exit 0: every cell can run here; next: `graphcheck run matrix m.toml`",
    ]


def test_some_cells_is_exit_8_and_each_obstacle_is_told(fake_world: FakeWorld) -> None:
    fake_world.matrix(tp=[2, 4], fault=["none", "drift"], settings={"device": "cuda"})
    found = examine("m.toml")
    drifts, lacks = "fault = drift: this target never drifts; choose another", "needs 4 cuda devices, found 2"
    assert {cell.name: cell.obstacles for cell in found.matrices[0].cells} == {
        "tp2-fault_none": (),
        "tp2-fault_drift": (drifts,),
        "tp4-fault_none": (lacks,),
        "tp4-fault_drift": (drifts, lacks),
    }
    lines = printed(found)
    assert f"  tp4-fault_drift  cannot run: {lacks}" in lines
    assert lines[-1].startswith("exit 8: some cells cannot run here; next: ")


def test_no_cell_is_exit_5(fake_world: FakeWorld) -> None:
    fake_world.matrix(tp=[1, 2], settings={"device": "cuda"})
    lines = printed(examine("m.toml", BARE))
    problem = "python failed with status 1: no torch; check that torch imports: python -c 'import torch'"
    assert f"GPUs         none: {problem}" in lines
    assert f"  tp1  cannot run: needs 1 cuda device, found 0: {problem}" in lines
    assert lines[-1] == "exit 5: no cell can run here; next: do what stands beside them"
    fake_world.matrix(tp=[1, 2])
    assert examine("m.toml", BARE).exit_code == 0, "a CPU cell needs no device"


def test_a_missing_golden_keeps_its_cells_from_running(fake_world: FakeWorld) -> None:
    fake_world.matrix(tp=[1])
    fake_world.golden_file.unlink()
    found = examine("m.toml")
    [cell] = found.matrices[0].cells
    assert cell.obstacles[0].startswith("golden toy/trio.jsonl: not in golden, ")
    assert found.exit_code == 5


def test_a_missing_model_keeps_every_cell_from_running(fake_world: FakeWorld) -> None:
    fake_world.matrix(tp=[1])
    (fake_world.path / "toy").rename(fake_world.path / "elsewhere")
    found = examine("m.toml")
    assert found.exit_code == 5
    assert any(line.startswith("m            no cell can run: model ") for line in printed(found))


def test_a_matrix_that_no_machine_can_run_is_wrong_usage(fake_world: FakeWorld) -> None:
    with pytest.raises(MatrixError, match="no shipped matrix has that name"):
        examine("nowhere")
    fake_world.matrix(speed=[9])
    with pytest.raises(MatrixError, match="target fake has no such setting"):
        examine("m.toml")


def test_unasked_every_shipped_matrix_is_looked_at_in_short(fake_world: FakeWorld) -> None:
    found = diagnose(None, BARE)
    matrices = {matrix.name: matrix for matrix in found.matrices}
    assert matrices.keys() >= {"default", "gpu", "smollm2"}
    assert matrices["default"].num_runnable == 6
    assert "graphcheck models add smollm2" in matrices["smollm2"].obstacle
    lines = printed(found)
    assert "default      6/6 cells can run" in lines
    assert any(line.startswith("  tp1-graph_off, tp1-graph_on  needs 1 cuda device, found 0: ") for line in lines)
    assert lines[-1].startswith("exit 8: ")

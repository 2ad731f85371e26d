"""`--share-gpus`: cells with more ranks than devices get the target's settings for sharing, the others stay."""

import pytest

from graphcheck.harness.planning.model_folder import open_model
from graphcheck.harness.planning.plan import PlannedAttempt
from graphcheck.harness.planning.sharing import share_devices
from graphcheck.harness.planning.suite_file import load_suite
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import DeviceError, UsageError
from graphcheck.shipped import matrices_dir, models_dir

CAPABLE = Capabilities(target="any", axes=(), devices={"cuda": "tp"}, sharing={"share_gpus": "on", "allreduce": "symm"})


def planned(tp: int, device: str = "cuda", **axes: AxisValue) -> PlannedAttempt:
    settings: dict[str, AxisValue] = {"tp": tp, "device": device, "share_gpus": "off", "allreduce": "nccl"} | axes
    attempt = Attempt(cell=Cell(axes={"tp": tp, **axes}))
    return PlannedAttempt(
        attempt, open_model(models_dir() / "probe"), load_suite("twelve", matrices_dir() / "m"), settings
    )


def shared(attempts: list[PlannedAttempt], found: int) -> list[AxisValue]:
    return [one.settings["allreduce"] for one in share_devices(attempts, CAPABLE, lambda kind: found)]


def test_only_cells_with_too_few_devices_share() -> None:
    attempts = [planned(1), planned(2), planned(4), planned(4, device="cpu")]
    assert shared(attempts, 2) == ["nccl", "nccl", "symm", "nccl"]
    assert shared(attempts, 1) == ["nccl", "symm", "symm", "nccl"]
    assert shared(attempts, 4) == ["nccl"] * 4


def test_without_any_device_nothing_changes_and_each_cell_says_what_it_lacks() -> None:
    def none(kind: str) -> int:
        raise DeviceError("0 cuda devices", "none is here", "run where one is")

    attempts = [planned(4)]
    assert share_devices(attempts, CAPABLE, none) == attempts


def test_cell_whose_axis_names_another_transport_is_left_alone() -> None:
    assert shared([planned(4, allreduce="nccl"), planned(4, allreduce="symm")], 2) == ["nccl", "symm"]


def test_target_whose_ranks_cannot_share_is_refused() -> None:
    with pytest.raises(UsageError, match="--share-gpus: ranks of target any cannot share devices; leave it out"):
        share_devices([planned(4)], CAPABLE.model_copy(update={"sharing": {}}), lambda kind: 1)

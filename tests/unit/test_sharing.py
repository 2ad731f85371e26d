"""`--share-gpus`: cells with more ranks than devices get the target's settings for sharing, the others stay."""

import pytest

from graphcheck.harness.files.model_folder import open_model
from graphcheck.harness.files.suite_file import load_suite
from graphcheck.harness.planning.plan import PlannedAttempt
from graphcheck.harness.planning.request import RunRequest, make_plan
from graphcheck.harness.planning.sharing import share_devices
from graphcheck.harness.records.run_folder import load_run
from graphcheck.harness.running.execute import Surroundings
from graphcheck.harness.running.run_matrix import run_matrix
from graphcheck.schema.attempt import Attempt, Cell
from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import DeviceError, UsageError
from graphcheck.shipped import matrices_dir, models_dir
from graphcheck.targets.fake import FakeTarget
from tests.fake_world import FakeWorld

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


class SharingTarget(FakeTarget):
    """Its ranks can share devices, with this setting."""

    def describe(self) -> Capabilities:
        return super().describe().model_copy(update={"sharing": {"logits": "digest"}})


def test_a_setting_that_was_typed_is_not_overridden_by_share_gpus(fake_world: FakeWorld) -> None:
    matrix = str(fake_world.matrix(tp=[1, 2], settings={"device": "cuda"}))

    def settings(*typed: str) -> list[AxisValue]:
        request = RunRequest(matrix=matrix, settings=typed, share_gpus=True)
        plan = make_plan(request, lambda name: SharingTarget(), lambda kind: 1)
        return [planned.settings["logits"] for planned in plan.attempts]

    assert settings() == ["off", "digest"]
    assert settings("logits=digest") == ["digest", "digest"]
    with pytest.raises(
        UsageError, match="--set logits=top: --share-gpus needs logits=digest; leave out one of the two"
    ):
        settings("logits=top")


@pytest.mark.parametrize(
    ("axes", "request_", "hint"),
    [
        ({}, {}, "; --share-gpus would run it"),
        ({}, {"settings": ("logits=off",)}, ""),
        ({"logits": ["off"]}, {}, ""),
        ({"logits": ["off"]}, {"share_gpus": True}, ""),
    ],
)
def test_share_gpus_is_not_said_to_run_a_cell_that_it_would_not(
    axes: dict[str, list[object]], request_: dict[str, object], hint: str, fake_world: FakeWorld
) -> None:
    matrix = fake_world.matrix(tp=[2], settings={"device": "cuda"}, **axes)
    surroundings = Surroundings(load_target=lambda name: SharingTarget(), count_devices=lambda kind: 1)
    result = run_matrix(RunRequest(matrix=str(matrix), **request_), surroundings=surroundings)
    finished = load_run(result.path).attempts[0].finished
    assert finished is not None
    assert finished.reason == f"needs 2 cuda devices, found 1{hint}"

"""Whether a cell has its devices, from an inventory: a count of none always says why."""

from collections.abc import Callable

import pytest

from graphcheck.harness.machine.devices import DeviceCheck, count_in
from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import DeviceError
from graphcheck.schema.inventory import Gpu, Inventory, TorchView

CUDA = TorchView(version="2.11.0+cu130", cuda="13.0", problem="Found no NVIDIA driver on your system.")
CPU = TorchView(version="2.13.0+cpu", problem="Torch not compiled with CUDA enabled")
RANKS = Capabilities(target="any", axes=(), devices={"cuda": "tp"})
SHARING = RANKS.model_copy(update={"sharing": {"share_gpus": "on", "allreduce": "symm"}})


def inventory(torch: TorchView | None, **fields: object) -> Inventory:
    machine: dict[str, object] = {"python": "3.12.3", "cores": 32, "shm_mib": 64, "shm_free_mib": 64}
    return Inventory.model_validate(machine | {"torch": torch} | fields)


def check(count: Callable[[str], int]) -> DeviceCheck:
    return DeviceCheck(RANKS, count)


def settings(tp: int, **more: AxisValue) -> dict[str, AxisValue]:
    return {"device": "cuda", "tp": tp, **more}


@pytest.mark.parametrize(
    ("torch", "fields", "reason"),
    [
        (None, {"problem": "python gave no answer within 60 s"}, "python gave no answer within 60 s; check that torch"),
        (CPU, {}, "torch 2.13.0+cpu is a CPU build, and no NVIDIA device is here; run where one is"),
        (CPU, {"num_nvidia_devices": 1}, "torch 2.13.0+cpu is a CPU build, although 1 NVIDIA device is here; install"),
        (CPU, {"num_nvidia_devices": 2}, "torch 2.13.0+cpu is a CPU build, although 2 NVIDIA devices are here; inst"),
        (CUDA, {"num_nvidia_devices": 2, "visible": ""}, "CUDA_VISIBLE_DEVICES= leaves none of 2; unset it"),
        (CUDA, {}, "no NVIDIA device is here (Found no NVIDIA driver on your system.); run where one is"),
        (CUDA, {"num_nvidia_devices": 2}, "Found no NVIDIA driver on your system.; look at the driver"),
    ],
)
def test_none_is_never_found_in_silence(torch: TorchView | None, fields: dict[str, object], reason: str) -> None:
    here = inventory(torch, **fields)
    with pytest.raises(DeviceError):
        count_in(here, "cuda")
    lack = check(lambda kind: count_in(here, kind)).lack(settings(tp=2))
    assert lack is not None
    assert lack.startswith(f"needs 2 cuda devices, found 0: {reason}")


def test_a_kind_that_nothing_can_count_is_not_found_in_silence() -> None:
    with pytest.raises(DeviceError, match="only cuda devices can be counted"):
        count_in(inventory(CUDA), "rocm")


def test_visible_gpus_are_counted_and_only_once() -> None:
    gpus = tuple(Gpu(index=index, name="NVIDIA H200", capability="9.0", total_mib=143000) for index in (0, 1))
    here = inventory(CUDA.model_copy(update={"gpus": gpus, "problem": ""}))
    asked: list[str] = []

    def count(kind: str) -> int:
        asked.append(kind)
        return count_in(here, kind)

    devices = check(count)
    assert [devices.lack(settings(tp)) for tp in (1, 2)] == [None, None]
    assert devices.lack(settings(4)) == "needs 4 cuda devices, found 2"
    assert devices.lack({"device": "cpu", "tp": 4}) is None
    assert asked == ["cuda"]


def test_sharing_is_not_proposed_to_a_cell_that_asks_for_what_it_would_change() -> None:
    off, two = settings(4, share_gpus="off", allreduce="nccl"), DeviceCheck(SHARING, lambda kind: 2)
    assert two.lack(off, {"allreduce": "nccl"}) == "needs 4 cuda devices, found 2"
    assert two.lack(off) == "needs 4 cuda devices, found 2", "nobody said that it could be asked for"
    assert check(lambda kind: 2).lack(off, {}) == "needs 4 cuda devices, found 2", "these ranks cannot share"


def test_ranks_that_share_need_one_gpu_in_all() -> None:
    def none(kind: str) -> int:
        raise DeviceError("0 cuda devices", "no NVIDIA device is here", "run where one is")

    on, off = settings(4, share_gpus="on", allreduce="symm"), settings(4, share_gpus="off", allreduce="nccl")
    assert DeviceCheck(SHARING, lambda kind: 1).lack(on) is None
    assert DeviceCheck(SHARING, lambda kind: 2).lack(off, {"tp": 4}) == (
        "needs 4 cuda devices, found 2; --share-gpus would run it"
    )
    assert DeviceCheck(SHARING, none).lack(off, {}) == DeviceCheck(SHARING, none).lack(off)
    why = "no NVIDIA device is here; run where one is"
    assert DeviceCheck(SHARING, none).lack(on) == f"needs 1 cuda device, found 0: {why}"
    assert DeviceCheck(SHARING, none).lack(off) == f"needs 4 cuda devices, found 0: {why}"

"""Owns what a machine offers to cells: its versions, its GPUs and how they reach each other, its shared memory."""

from graphcheck.schema.base import Record


class Gpu(Record):
    """A GPU as ranks see it: `index` counts the visible ones, `peers` are those whose memory it can address.

    Memory in MiB; `free_mib` is None where nobody could tell. `capability` is the compute capability (`9.0`).
    """

    index: int
    name: str
    capability: str
    total_mib: int
    free_mib: int | None = None
    peers: tuple[int, ...] = ()


class TorchView(Record):
    """What torch says of itself and of the GPUs.

    `cuda` is the CUDA version that it was built for, None for a CPU build; `nccl` and `triton` are versions, None where
    the one is not built in and the other does not import. `problem` says why CUDA cannot be used, empty if it can.
    """

    version: str
    cuda: str | None = None
    nccl: str | None = None
    triton: str | None = None
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""


class Inventory(Record):
    """A machine, and what torch sees of it; None, with the reason in `problem`, if torch could not be asked.

    `num_nvidia_devices` and `driver` need no torch. `visible` is CUDA_VISIBLE_DEVICES, None if it is not set.
    """

    python: str
    cores: int
    shm_mib: int
    shm_free_mib: int
    num_nvidia_devices: int = 0
    driver: str | None = None
    visible: str | None = None
    torch: TorchView | None = None
    problem: str = ""

"""Owns what differs between a rank on a CPU and one on a GPU: the device, its graphs, moving to it, waiting for it."""

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from graphcheck.engine.graphs.base import GraphBackend
from graphcheck.engine.graphs.cuda import CudaGraphBackend
from graphcheck.engine.graphs.tape import TapeBackend


class Device(Protocol):
    """One rank's device."""

    name: str
    torch_device: torch.device

    def make_graphs(self, *, trace: bool) -> GraphBackend:
        """The device's graph backend; `trace` asks for what twin capture compares, where the backend can tell."""
        ...

    def upload(self, buffer: torch.Tensor, values: np.ndarray) -> None:
        """Copies host values into a device buffer of the same shape, in place, ordered before later device work."""
        ...

    def wait(self) -> None:
        """Returns when all device work is done: a declared wait."""
        ...

    def delay(self, seconds: float) -> None:
        """Makes the device's work late; device work, so that a graph can hold it."""
        ...

    def peak_memory_bytes(self) -> int | None:
        """Largest device memory in use so far; None where device memory is host memory."""
        ...


class CpuDevice:
    name = "CPU"
    torch_device = torch.device("cpu")

    def make_graphs(self, *, trace: bool) -> GraphBackend:
        return TapeBackend(trace=trace)

    def upload(self, buffer: torch.Tensor, values: np.ndarray) -> None:
        buffer.copy_(torch.from_numpy(values))

    def wait(self) -> None:
        return None

    def delay(self, seconds: float) -> None:
        time.sleep(seconds)

    def peak_memory_bytes(self) -> int | None:
        return None


class CudaDevice:
    """The GPU of this rank."""

    def __init__(self, local_rank: int) -> None:
        self.torch_device = torch.device("cuda", local_rank)
        torch.cuda.set_device(self.torch_device)
        self.name = torch.cuda.get_device_name(self.torch_device)

    def make_graphs(self, *, trace: bool) -> GraphBackend:
        return CudaGraphBackend(self.torch_device)

    def upload(self, buffer: torch.Tensor, values: np.ndarray) -> None:
        # The step's results are read before the next upload, so a pinned block is never refilled while in use;
        # the caching host allocator reuses it only after the copy.
        buffer.copy_(torch.from_numpy(values).pin_memory(), non_blocking=True)

    def wait(self) -> None:
        torch.cuda.current_stream().synchronize()

    def delay(self, seconds: float) -> None:
        clock_khz = torch.cuda.get_device_properties(self.torch_device).clock_rate
        torch.cuda._sleep(int(seconds * clock_khz * 1e3))

    def peak_memory_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated(self.torch_device)


DEVICES: dict[str, Callable[[int], Device]] = {"cpu": lambda local_rank: CpuDevice(), "cuda": CudaDevice}
"""Value of the setting `device` -> the device of a local rank."""

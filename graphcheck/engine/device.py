"""Owns what differs between a rank on a CPU and one on a GPU: the device, its graphs, moving to it, waiting for it."""

import os
import time
from typing import Protocol

import numpy as np
import torch

from graphcheck.engine.errors import ConfigError
from graphcheck.engine.graphs.base import GraphBackend
from graphcheck.engine.graphs.cuda import CudaGraphBackend
from graphcheck.engine.graphs.tape import TapeBackend


class Device(Protocol):
    """One rank's device; `gpu` is the unique id of a GPU, as its driver tells it."""

    name: str
    gpu: str | None
    torch_device: torch.device

    def make_graphs(self, *, trace: bool) -> GraphBackend:
        """The device's graph backend; `trace` asks it for the trace of every graph, which an audit needs."""
        ...

    def upload(self, buffer: torch.Tensor, values: np.ndarray) -> None:
        """Copies host values into a device buffer of the same shape, in place, ordered before later device work."""
        ...

    def wait_for_device(self) -> None:
        """Returns when all device work is done: a declared wait, by its own name so that a stack shows it."""
        ...

    def register(self, memory: torch.Tensor) -> torch.Tensor:
        """Lets work of the device write into host memory, whole pages of it: the same memory as the device's tensor.

        Raises:
            ConfigError: the driver refuses.
        """
        ...

    def delay(self, nanoseconds: torch.Tensor) -> None:
        """Makes the device's work late by the word in int64 `nanoseconds` [1], in device memory and read when the
        work runs; device work, so that a graph can hold it."""
        ...

    def peak_memory_bytes(self) -> int | None:
        """Largest device memory in use so far; None where device memory is host memory."""
        ...


class CpuDevice:
    name = "CPU"
    gpu: str | None = None
    torch_device = torch.device("cpu")

    def make_graphs(self, *, trace: bool) -> GraphBackend:
        return TapeBackend(trace=trace)

    def upload(self, buffer: torch.Tensor, values: np.ndarray) -> None:
        buffer.copy_(torch.from_numpy(values))

    def wait_for_device(self) -> None:
        return None

    def register(self, memory: torch.Tensor) -> torch.Tensor:
        return memory

    def delay(self, nanoseconds: torch.Tensor) -> None:
        time.sleep(int(nanoseconds) / 1e9)

    def peak_memory_bytes(self) -> int | None:
        return None


class CudaDevice:
    """The GPU of this rank; with `share`, ranks that outnumber the GPUs take turns on them."""

    def __init__(self, local_rank: int, *, share: bool) -> None:
        if share:
            local_rank %= torch.cuda.device_count()
            # torch refuses symmetric memory of two ranks on one device unless it is told that this is meant.
            os.environ["TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"] = "1"
        self.torch_device = torch.device("cuda", local_rank)
        torch.cuda.set_device(self.torch_device)
        properties = torch.cuda.get_device_properties(self.torch_device)
        self.name = properties.name
        self.gpu: str | None = f"GPU-{properties.uuid}"

    def make_graphs(self, *, trace: bool) -> GraphBackend:
        return CudaGraphBackend(self.torch_device, trace=trace)

    def upload(self, buffer: torch.Tensor, values: np.ndarray) -> None:
        # The caching host allocator reuses a pinned block only after the copy from it is done.
        buffer.copy_(torch.from_numpy(values).pin_memory(), non_blocking=True)

    def wait_for_device(self) -> None:
        torch.cuda.current_stream().synchronize()

    def register(self, memory: torch.Tensor) -> torch.Tensor:
        error = torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)
        if int(error) != 0:
            raise ConfigError(
                f"breadcrumbs = on: {memory.nbytes} bytes of host memory cannot be registered "
                f"({torch.cuda.cudart().cudaGetErrorString(error)}); use breadcrumbs = off"
            )
        # Registered memory has one address for host and device, and a kernel that stores there costs less than a copy.
        return torch.as_tensor(_ArrayInterface(memory), device=self.torch_device)

    def delay(self, nanoseconds: torch.Tensor) -> None:
        # Only here: a torch for CPUs comes without triton.
        from graphcheck.engine.kernels.delay import spin

        spin(nanoseconds)

    def peak_memory_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated(self.torch_device)


class _ArrayInterface:
    """Tells torch that 64-bit words of registered host memory are the device's as well."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.__cuda_array_interface__ = {
            "shape": tuple(memory.shape),
            "typestr": "<i8",
            "data": (memory.data_ptr(), False),
            "version": 3,
        }


def open_device(kind: str, local_rank: int, *, share: bool) -> Device:
    """The device of a local rank: `kind` and `share` are the settings `device` and `share_gpus`."""
    return CpuDevice() if kind == "cpu" else CudaDevice(local_rank, share=share)

"""Owns what the NVIDIA driver tells without torch: its version, its GPUs, their memory in use."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcheck.harness.machine.child import ask

VISIBLE = "CUDA_VISIBLE_DEVICES"

_PROC = Path("/proc/driver/nvidia")
_DEV = Path("/dev")
_FIELDS = ("driver_version", "uuid", "name", "memory.used", "memory.free")
_QUERY = ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
_QUERY_SECONDS = 20.0


@dataclass(frozen=True)
class DriverGpu:
    """A line of nvidia-smi; memory is None where the driver does not tell, as on a GPU cut up by MIG."""

    driver: str
    uuid: str
    name: str
    used_mib: int | None
    free_mib: int | None


def driver_version() -> str | None:
    """The version of the kernel's driver, by nvidia-smi where the kernel does not tell; None without one."""
    version = _PROC / "version"
    stated = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", version.read_text()) if version.is_file() else None
    return stated[1] if stated else next((gpu.driver for gpu in query() or ()), None)


def num_nvidia_devices() -> int:
    """GPUs of this machine, visible to ranks or not; nvidia-smi is asked only where the kernel shows no trace."""
    gpus = _PROC / "gpus"
    num_known = len(list(gpus.iterdir())) if gpus.is_dir() else 0
    num_nodes = sum(re.fullmatch(r"nvidia\d+", node.name) is not None for node in _DEV.glob("nvidia*"))
    return num_known or num_nodes or len(query() or ())


def memory_in_use() -> dict[int, int] | None:
    """GPU -> MiB in use, by whatever program; GPUs are counted as ranks see them. None where it cannot be read."""
    gpus = visible_gpus()
    used = {index: gpu.used_mib for index, gpu in enumerate(gpus or ()) if gpu.used_mib is not None}
    return used if gpus is not None and len(used) == len(gpus) else None


def visible_gpus() -> list[DriverGpu] | None:
    """The GPUs that a rank of this environment sees, in its order; None where they cannot be told."""
    gpus = query()
    return None if gpus is None else choose(gpus, os.environ)


def query() -> list[DriverGpu] | None:
    """Every GPU in the order of nvidia-smi; None if it gives no answer."""
    answer = ask(_QUERY, _QUERY_SECONDS)
    return None if answer.problem else parse(answer.text)


def parse(text: str) -> list[DriverGpu] | None:
    """The lines of nvidia-smi; None if one is not what was asked for: the GPUs could not be counted then."""
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines() if line.strip()]
    if any(len(row) != len(_FIELDS) for row in rows):
        return None
    return [DriverGpu(driver, uuid, name, _mib(used), _mib(free)) for driver, uuid, name, used, free in rows]


def choose(gpus: Sequence[DriverGpu], environment: Mapping[str, str]) -> list[DriverGpu] | None:
    """Those of `gpus` that a rank sees, in its order; None where that order is not to be had without CUDA.

    As CUDA reads CUDA_VISIBLE_DEVICES: indices or the beginnings of UUIDs; whatever follows a wrong one is hidden.
    """
    if len({gpu.name for gpu in gpus}) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return None  # CUDA counts the fastest first, nvidia-smi by bus
    listed = environment.get(VISIBLE)
    if listed is None:
        return list(gpus)
    shown: list[DriverGpu] = []
    for entry in map(str.strip, listed.split(",")):
        if entry.startswith("MIG-"):
            return None
        index = int(entry) if entry.isdigit() else len(gpus)
        named = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
        if index >= len(gpus) and len(named) != 1:
            break
        shown.append(named[0] if named else gpus[index])
    return shown


def _mib(field: str) -> int | None:
    return int(field) if field.isdigit() else None

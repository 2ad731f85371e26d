"""Owns what a run records about the machine and the packages it ran with, found out without importing them."""

import importlib.metadata
import importlib.util
import os
import platform
import re
from pathlib import Path

from graphcheck.harness.machine.nvidia import driver_version, num_nvidia_devices

_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")
NONE = "none"


def environment() -> dict[str, str]:
    """Versions, cores and devices. `torch_cuda` is the CUDA version that torch was built for.

    "none" stands for what is not there.
    """
    found = {"python": platform.python_version(), "platform": platform.platform(), "cores": str(_num_cores())}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = NONE
    found["torch_cuda"] = _torch_cuda()
    found["nvidia_devices"] = str(num_nvidia_devices())
    found["nvidia_driver"] = driver_version() or NONE
    return found


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))


def _torch_cuda() -> str:
    """Read from torch's own version file: importing torch would cost seconds and touch devices."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return NONE
    version = Path(spec.origin).with_name("version.py")
    stated = re.search(r"^cuda\b[^=]*= *'([^']+)'", version.read_text(encoding="utf-8"), re.MULTILINE)
    return stated[1] if stated else NONE

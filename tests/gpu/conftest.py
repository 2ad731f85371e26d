"""GPU tests run by hand (`pytest -m gpu`) and skip, with the reason, where the devices are missing."""

import pytest

from graphcheck.harness.machine.devices import count_devices
from graphcheck.schema.errors import DeviceError
from tests.engine.conftest import tiny

__all__ = ["tiny"]


@pytest.fixture(scope="session")
def num_gpus() -> int:
    """GPUs of this machine, counted by a child so that this process never touches one."""
    try:
        return count_devices("cuda")
    except DeviceError:
        return 0


@pytest.fixture
def needs(num_gpus: int) -> "Needs":
    return Needs(num_gpus)


class Needs:
    """Skips a test that asks for more devices than there are."""

    def __init__(self, num_gpus: int) -> None:
        self._num_gpus = num_gpus

    def __call__(self, count: int) -> None:
        if self._num_gpus < count:
            pytest.skip(f"needs {count} CUDA devices, found {self._num_gpus}")

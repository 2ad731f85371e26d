"""Owns whether a cell has the devices that it needs; a device is touched by a short-lived child process only."""

import subprocess
import sys
from collections.abc import Callable, Mapping

from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import Capabilities

_COUNT = {"cuda": "import torch; print(torch.cuda.device_count())"}
_COUNT_SECONDS = 60.0


class DeviceCheck:
    """Compares what cells need with what there is; each kind of device is counted once."""

    def __init__(self, capabilities: Capabilities, count: Callable[[str], int]) -> None:
        self._capabilities, self._count = capabilities, count
        self._found: dict[str, int] = {}

    def lack(self, settings: Mapping[str, AxisValue]) -> str | None:
        """What a cell with these settings lacks, or None."""
        for kind, needed in devices_needed(self._capabilities, settings).items():
            if kind not in self._found:
                self._found[kind] = self._count(kind)
            if self._found[kind] < needed:
                return f"needs {needed} {kind} devices, found {self._found[kind]}"
        return None


def devices_needed(capabilities: Capabilities, settings: Mapping[str, AxisValue]) -> dict[str, int]:
    """Device kind -> number. With a setting `device` only that kind is needed, without one every declared kind."""
    return {
        kind: int(settings[axis]) for kind, axis in capabilities.devices.items() if settings.get("device", kind) == kind
    }


def count_devices(kind: str) -> int:
    """Devices of a kind that a rank of this environment would see; 0 for a kind that nothing here can count."""
    if kind not in _COUNT:
        return 0
    child = subprocess.run(
        [sys.executable, "-c", _COUNT[kind]], capture_output=True, text=True, timeout=_COUNT_SECONDS, check=False
    )
    return int(child.stdout) if child.returncode == 0 else 0

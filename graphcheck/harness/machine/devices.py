"""Owns whether a cell has the devices that it needs; they are counted from the inventory, never by this process."""

from collections.abc import Callable, Mapping

from graphcheck.harness.machine.inventory import take_inventory
from graphcheck.harness.machine.nvidia import VISIBLE
from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import DeviceError
from graphcheck.schema.inventory import Inventory


class DeviceCheck:
    """Compares what cells need with what there is; each kind of device is counted once."""

    def __init__(self, capabilities: Capabilities, count: Callable[[str], int]) -> None:
        self._capabilities, self._count = capabilities, count
        self._found: dict[str, tuple[int, str]] = {}

    def lack(self, settings: Mapping[str, AxisValue], asked: Mapping[str, AxisValue] | None = None) -> str | None:
        """What a cell with these settings lacks, or None. Ranks that share devices need one in all.

        `asked` are those settings that sharing may not change; where they are given, and it need not, it is proposed.
        """
        for kind, ranks in devices_needed(self._capabilities, settings).items():
            needed = min(ranks, 1) if is_shared(self._capabilities, settings) else ranks
            found, why_none = self._find(kind)
            if found < needed:
                lack = f"needs {needed} {kind} device{'s' * (needed > 1)}, found {found}{why_none}"
                helps = found and asked is not None and may_share(self._capabilities, asked)
                return f"{lack}; --share-gpus would run it" if helps else lack
        return None

    def _find(self, kind: str) -> tuple[int, str]:
        """How many there are and, if none, why."""
        if kind not in self._found:
            try:
                self._found[kind] = self._count(kind), ""
            except DeviceError as error:
                self._found[kind] = 0, f": {error.rule}; {error.todo}"
        return self._found[kind]


def is_shared(capabilities: Capabilities, settings: Mapping[str, AxisValue]) -> bool:
    """True if the ranks of a cell with these settings may share devices."""
    return bool(capabilities.sharing) and capabilities.sharing.items() <= settings.items()


def may_share(capabilities: Capabilities, asked: Mapping[str, AxisValue]) -> bool:
    """True if the ranks of a cell can share devices without a change of what is `asked` of its settings."""
    sharing = capabilities.sharing
    return bool(sharing) and all(asked.get(name, value) == value for name, value in sharing.items())


def devices_needed(capabilities: Capabilities, settings: Mapping[str, AxisValue]) -> dict[str, int]:
    """Device kind -> number. With a setting `device` only that kind is needed, without one every declared kind."""
    return {
        kind: int(settings[axis]) for kind, axis in capabilities.devices.items() if settings.get("device", kind) == kind
    }


def count_devices(kind: str) -> int:
    """Devices of a kind that a rank of this environment would see, one or more.

    Raises:
        DeviceError: there is none, and why.
    """
    return count_in(take_inventory(), kind)


def count_in(inventory: Inventory, kind: str) -> int:
    """The same from an inventory that has been taken."""
    if kind != "cuda":
        raise DeviceError(f"0 {kind} devices", "only cuda devices can be counted", "choose another device")
    if inventory.torch is None or not inventory.torch.gpus:
        raise DeviceError("0 cuda devices", *_why_no_gpus(inventory))
    return len(inventory.torch.gpus)


def _why_no_gpus(inventory: Inventory) -> tuple[str, str]:
    """The reason, and what to do about it."""
    torch, present = inventory.torch, inventory.num_nvidia_devices
    if torch is None:
        return inventory.problem, "check that torch imports: python -c 'import torch'"
    if torch.cuda is None:
        if not present:
            return f"torch {torch.version} is a CPU build, and no NVIDIA device is here", "run where one is"
        return (
            f"torch {torch.version} is a CPU build, although {present} NVIDIA device{'s are' if present > 1 else ' is'}"
            " here",
            "install a torch that is built for CUDA",
        )
    if inventory.visible is not None:
        return f"{VISIBLE}={inventory.visible} leaves none of {present}", "unset it, or name one that is here"
    if not present:
        return f"no NVIDIA device is here ({torch.problem})", "run where one is"
    return torch.problem, "look at the driver with `nvidia-smi`"

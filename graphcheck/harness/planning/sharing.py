"""Owns which cells run with several ranks on one device: those that have too few, if the user allows it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from graphcheck.harness.machine.devices import devices_needed, may_share
from graphcheck.harness.planning.plan import PlannedAttempt
from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import DeviceError, UsageError


def share_devices(
    attempts: Sequence[PlannedAttempt], capabilities: Capabilities, count: Callable[[str], int]
) -> list[PlannedAttempt]:
    """The attempts, those that need more devices than there are with the target's settings for sharing.

    A cell whose own axes say otherwise is left as it is. No device at all is left to the check of each cell.

    Raises:
        UsageError: the ranks of this target cannot share devices, or the command line gives another setting for it.
    """
    if not capabilities.sharing:
        rule = f"ranks of target {capabilities.target} cannot share devices"
        raise UsageError("--share-gpus", rule, "leave it out")
    for planned in attempts:
        _check_typed(planned.typed, capabilities)
    found: dict[str, int] = {}

    def lacks_devices(planned: PlannedAttempt) -> bool:
        for kind, needed in devices_needed(capabilities, planned.settings).items():
            if kind not in found:
                found[kind] = _count(count, kind)
            if 0 < found[kind] < needed:
                return True
        return False

    def shared(planned: PlannedAttempt) -> PlannedAttempt:
        if not may_share(capabilities, planned.asked):
            return planned
        return replace(planned, settings=planned.settings | capabilities.sharing)

    return [shared(planned) if lacks_devices(planned) else planned for planned in attempts]


def _check_typed(typed: Mapping[str, AxisValue], capabilities: Capabilities) -> None:
    for name, value in capabilities.sharing.items():
        if name in typed and typed[name] != value:
            what, rule = f"--set {name}={typed[name]}", f"--share-gpus needs {name}={value}"
            raise UsageError(what, rule, "leave out one of the two")


def _count(count: Callable[[str], int], kind: str) -> int:
    try:
        return count(kind)
    except DeviceError:
        return 0

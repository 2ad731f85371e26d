"""Owns which cells run with several ranks on one device: those that have too few, if the user allows it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from graphcheck.harness.planning.plan import PlannedAttempt
from graphcheck.harness.running.devices import devices_needed
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.errors import DeviceError, UsageError


def share_devices(
    attempts: Sequence[PlannedAttempt], capabilities: Capabilities, count: Callable[[str], int]
) -> list[PlannedAttempt]:
    """The attempts, those that need more devices than there are with the target's settings for sharing.

    A cell whose own axes say otherwise is left as it is. No device at all is left to the check of each cell.

    Raises:
        UsageError: the ranks of this target cannot share devices.
    """
    if not capabilities.sharing:
        rule = f"ranks of target {capabilities.target} cannot share devices"
        raise UsageError("--share-gpus", rule, "leave it out")
    found: dict[str, int] = {}

    def lacks_devices(planned: PlannedAttempt) -> bool:
        for kind, needed in devices_needed(capabilities, planned.settings).items():
            if kind not in found:
                found[kind] = _count(count, kind)
            if 0 < found[kind] < needed:
                return True
        return False

    def shared(planned: PlannedAttempt) -> PlannedAttempt:
        axes = planned.attempt.cell.axes
        if any(axes.get(name, value) != value for name, value in capabilities.sharing.items()):
            return planned
        return replace(planned, settings=planned.settings | capabilities.sharing)

    return [shared(planned) if lacks_devices(planned) else planned for planned in attempts]


def _count(count: Callable[[str], int], kind: str) -> int:
    try:
        return count(kind)
    except DeviceError:
        return 0

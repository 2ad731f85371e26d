"""Owns whether GPU memory is back where it was before an attempt, and whose attempt left what is not."""

from collections.abc import Callable, Mapping

from graphcheck.harness.machine.devices import devices_needed
from graphcheck.harness.running.supervise import Clock
from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import Capabilities
from graphcheck.schema.run import AttemptStarted

SETTLE_SECONDS = 5.0
"""The driver takes a moment to free what a dead process held."""

TOLERANCE_MIB = 64
"""Less than the context that any process with a CUDA device holds, so that not one can stay unseen."""

_POLL_SECONDS = 0.25

ReadMemory = Callable[[], Mapping[int, int] | None]
"""GPU as ranks see it -> MiB in use, by whatever program; None where it cannot be read."""


class DeviceMemory:
    """Follows the GPUs over the attempts of a run. Where their memory cannot be read it claims nothing."""

    def __init__(self, capabilities: Capabilities, read: ReadMemory, clock: Clock) -> None:
        self._capabilities, self._read, self._clock = capabilities, read, clock
        self._baseline: dict[int, int] | None = None
        self._left_by: dict[int, str] = {}

    def held(self, settings: Mapping[str, AxisValue]) -> str | None:
        """Before an attempt: why it cannot start, if an earlier one left memory on a device of its own."""
        num_gpus = self._num_gpus(settings)
        if num_gpus and self._baseline is None:
            self._baseline = dict(self._read() or {})
        if not any(gpu < num_gpus for gpu in self._left_by):
            return None
        held = {gpu: mib for gpu, mib in (self._excess(num_gpus) or {}).items() if gpu in self._left_by}
        if not held:
            return None
        left = ", ".join(f"GPU {gpu} still holds {mib} MiB that {self._left_by[gpu]} left" for gpu, mib in held.items())
        return f"{left}, unless another program took it since; free it (`nvidia-smi` names its process), then run again"

    def left(self, started: AttemptStarted) -> dict[int, int] | None:
        """After an attempt: GPU -> MiB that its processes, all gone, left in use. None if nobody can tell."""
        num_gpus = self._num_gpus(started.settings)
        deadline = self._clock.now() + SETTLE_SECONDS
        excess = self._excess(num_gpus)
        while excess and self._clock.now() < deadline:
            self._clock.sleep(_POLL_SECONDS)
            excess = self._excess(num_gpus)
        self._left_by |= dict.fromkeys(excess or (), started.key)
        return excess

    def _num_gpus(self, settings: Mapping[str, AxisValue]) -> int:
        """How many a cell may use: one a rank, the first ones; there may be fewer, which ranks then share."""
        return devices_needed(self._capabilities, settings).get("cuda", 0)

    def _excess(self, num_gpus: int) -> dict[int, int] | None:
        """What the first GPUs have in use beyond the least seen so far."""
        used = self._read() if num_gpus and self._baseline else None
        if used is None or self._baseline is None or not used.keys() >= self._baseline.keys():
            return None
        # Other programs come and go: one that has gone must not hide what an attempt leaves.
        self._baseline = {gpu: min(mib, used[gpu]) for gpu, mib in self._baseline.items()}
        excess = {gpu: used[gpu] - mib for gpu, mib in self._baseline.items() if gpu < num_gpus}
        return {gpu: mib for gpu, mib in excess.items() if mib > TOLERANCE_MIB}

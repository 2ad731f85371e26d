"""Owns breadcrumbs: the step itself writes into host memory how far it has come, eager and in every replay.

While the device is stuck the host sees nothing of a captured step, and neither do the watchdogs of torch and NCCL.
Each site therefore copies the number of the running step into its word of the rank's trail, as work of the device; a
reader of the journal needs nothing of the stuck rank to see which site came last.
"""

from collections.abc import Sequence

import torch

from graphcheck.engine.device import Device
from graphcheck.engine.errors import ConfigError
from graphcheck.engine.journal import MOST_SITES, JournalWriter


class Breadcrumbs:
    """Leaves one word a site; changes no tensor of the step."""

    def __init__(self, journal: JournalWriter, device: Device) -> None:
        self._journal, self._device = journal, device
        self._step = 0
        self._number = torch.zeros(1, dtype=torch.int64, device=device.torch_device)

    def bind(self, sites: Sequence[str]) -> None:
        """See Hooks.bind.

        Raises:
            ConfigError: the model has more sites than a trail has words, or the device cannot reach the trail.
        """
        if len(sites) > MOST_SITES:
            raise ConfigError(
                f"breadcrumbs = on: the model has {len(sites)} sites, a trail {MOST_SITES} words; use breadcrumbs = off"
            )
        trail = self._device.register(torch.frombuffer(self._journal.trail_words(), dtype=torch.int64))
        self._words = dict(zip(sites, trail.split(1), strict=False))

    def begin_step(self, replay: int) -> None:
        """See Hooks.begin_step."""
        self._step += 1
        self._number.add_(1)
        self._journal.launched(self._step, replay)

    def site(self, name: str, x: torch.Tensor) -> None:
        """See Hooks.site."""
        torch.add(self._number, 0, out=self._words[name])

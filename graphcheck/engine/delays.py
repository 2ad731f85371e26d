"""Owns injected delays: a hook that makes one rank late at chosen sites, eager and in every replay."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from graphcheck.engine.device import Device
from graphcheck.engine.errors import ConfigError
from graphcheck.engine.graphs.base import GraphBackend


class DelayHooks:
    """Is late by `seconds[site]` whenever a step passes `site`.

    How long is a word of device memory, read when the site is passed: 0 until the first step, so that capture and
    warm-up are on time, and the same graph then serves on time or late.
    """

    def __init__(self, seconds: Mapping[str, float], backend: GraphBackend, device: Device) -> None:
        self._seconds, self._backend, self._device = seconds, backend, device
        self._armed = False
        self._nanoseconds = {
            site: torch.zeros(1, dtype=torch.int64, device=device.torch_device) for site in self._seconds
        }

    def bind(self, sites: Sequence[str]) -> None:
        """See Hooks.bind.

        Raises:
            ConfigError: a delay at a site that the model does not have; names it and what there is.
        """
        for site in sorted(self._seconds.keys() - set(sites)):
            raise ConfigError(f"delay at {site!r}: no such site; choose one of {', '.join(sorted(sites))}")

    def begin_step(self, replay: int) -> None:
        """See Hooks.begin_step."""
        if not self._armed:
            self._armed = True
            for site, word in self._nanoseconds.items():
                self._device.upload(word, np.array([int(self._seconds[site] * 1e9)]))

    def site(self, name: str, x: torch.Tensor) -> None:
        """See Hooks.site."""
        if name in self._nanoseconds:
            word = self._nanoseconds[name]
            self._backend.call(lambda: self._device.delay(word), f"delay {name}")

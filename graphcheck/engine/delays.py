"""Owns injected delays: a hook that makes one rank late at chosen sites, eager and in every replay."""

from collections.abc import Mapping

import torch

from graphcheck.engine.device import Device
from graphcheck.engine.errors import ConfigError
from graphcheck.engine.graphs.base import GraphBackend
from graphcheck.engine.site_names import all_sites


class DelayHooks:
    """Sleeps `seconds[site]` whenever the step passes `site`; what was captured is replayed."""

    def __init__(self, seconds: Mapping[str, float], backend: GraphBackend, device: Device) -> None:
        self._seconds, self._backend, self._device = seconds, backend, device

    def site(self, name: str, x: torch.Tensor) -> None:
        """See Hooks.site."""
        seconds = self._seconds.get(name)
        if seconds is not None:
            self._backend.call(lambda: self._device.delay(seconds), f"delay {name}")


def check_sites(seconds: Mapping[str, float], num_layers: int) -> None:
    """Refuses a delay at a site that a model of `num_layers` does not have.

    Raises:
        ConfigError: names the site and what there is.
    """
    known = all_sites(num_layers)
    for site in sorted(seconds.keys() - known):
        raise ConfigError(f"delay at {site!r}: no such site; choose from {', '.join(sorted(known))}")

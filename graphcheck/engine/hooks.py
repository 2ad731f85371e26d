"""Owns the one hook through which tools look into a step: delays, taps and breadcrumbs plug in here."""

from typing import Protocol

import torch


class Hooks(Protocol):
    """Called by the model at each layer and around each reduce, with names that stay stable across versions.

    During capture the hook must put its work on the graph (`GraphBackend.call`): no model code runs at replay.
    """

    def site(self, name: str, x: torch.Tensor) -> None:
        """`name` such as `layers.3.o_proj.reduce`, `x` the tensor at hand."""
        ...


class NoHooks:
    """Does nothing."""

    def site(self, name: str, x: torch.Tensor) -> None:
        return None

"""Owns the one hook through which tools look into a step: delays and breadcrumbs plug in here."""

from collections.abc import Sequence
from typing import Protocol

import torch


class Hooks(Protocol):
    """Called at each layer and around each collective, with names that stay stable across versions (site_names)."""

    def bind(self, sites: Sequence[str]) -> None:
        """Comes first, with every site of the model in the order of a step.

        Raises:
            ConfigError: the hook cannot work on this model or device.
        """
        ...

    def begin_step(self, replay: int) -> None:
        """A step is about to be launched: replay number `replay`, counted from 1, or 0 for an eager one.

        Never called while a graph is captured or warmed up.
        """
        ...

    def site(self, name: str, x: torch.Tensor) -> None:
        """`name` such as `layers.3.o_proj.reduce`, `x` the tensor at hand.

        During capture the hook must put its work on the graph: no model code runs at replay.
        """
        ...


class HookChain:
    """Several hooks, one after the other; none at all does nothing."""

    def __init__(self, *hooks: Hooks) -> None:
        self._hooks = hooks

    def bind(self, sites: Sequence[str]) -> None:
        """See Hooks.bind."""
        for hook in self._hooks:
            hook.bind(sites)

    def begin_step(self, replay: int) -> None:
        """See Hooks.begin_step."""
        for hook in self._hooks:
            hook.begin_step(replay)

    def site(self, name: str, x: torch.Tensor) -> None:
        """See Hooks.site."""
        for hook in self._hooks:
            hook.site(name, x)

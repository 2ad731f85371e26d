"""Owns the names of targets: name -> "module:object", loaded when used."""

import importlib
from typing import cast

from graphcheck.schema.errors import UsageError
from graphcheck.targets.base import Target

TARGETS: dict[str, str] = {
    "bundled": "graphcheck.targets.bundled.target:BundledTarget",
    "transformers": "graphcheck.targets.transformers.target:TransformersTarget",
    "fake": "graphcheck.targets.fake:FakeTarget",
}


def load_target(name: str) -> Target:
    """The target registered under `name`.

    Raises:
        UsageError: no target has that name.
    """
    if name not in TARGETS:
        raise UsageError(f"target {name!r}", "no such target", f"choose one of {', '.join(sorted(TARGETS))}")
    module, _, attribute = TARGETS[name].partition(":")
    return cast(Target, getattr(importlib.import_module(module), attribute)())

"""Owns what a shell may complete a name to; looked up only when it asks."""

from collections.abc import Callable


def names_of(kind: str) -> Callable[[str], list[str]]:
    """A completion with the names of `graphcheck list KIND` that begin with what was typed."""

    def complete(incomplete: str) -> list[str]:
        from graphcheck.harness.catalogue import catalogue

        return [name for name, _ in catalogue(kind) if name.startswith(incomplete)]

    return complete

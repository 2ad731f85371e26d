"""Owns which fixes are on, and how often the one site of each was reached, per phase."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from graphcheck.engine.fixes import FIX_NAMES

PHASES = ("prepare", "capture", "replay", "eager")


class FixSites:
    """Asked by each site whether its fix is on. A site that a graph holds is counted once per replay as well."""

    def __init__(self, fixes_off: frozenset[str]) -> None:
        self._off = fixes_off
        self._phase = "eager"
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in FIX_NAMES}

    def on(self, fix: str) -> bool:
        """True if `fix` is on; counts the visit."""
        self._counts[fix][self._phase] += 1
        return fix not in self._off

    @contextmanager
    def phase(self, phase: str) -> Iterator[None]:
        """Visits inside the block count for `phase`."""
        before, self._phase = self._phase, phase
        try:
            yield
        finally:
            self._phase = before

    @contextmanager
    def capturing(self) -> Iterator[dict[str, int]]:
        """Yields a dict that holds, after the block, how often the captured step visits each site."""
        before = {fix: counts["capture"] for fix, counts in self._counts.items()}
        visits: dict[str, int] = {}
        with self.phase("capture"):
            yield visits
        visits |= {fix: counts["capture"] - before[fix] for fix, counts in self._counts.items()}

    def replayed(self, visits: dict[str, int]) -> None:
        """Counts one replay of a graph whose capture made `visits`."""
        for fix, count in visits.items():
            self._counts[fix]["replay"] += count

    def counts(self) -> dict[str, dict[str, int]]:
        """fix -> phase -> visits, every phase present."""
        return {fix: {phase: counts[phase] for phase in PHASES} for fix, counts in self._counts.items()}

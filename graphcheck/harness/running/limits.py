"""Owns how long each phase of an attempt may pass without progress, and how often the supervisor looks."""

from dataclasses import dataclass

from graphcheck.schema.events import Phase

STEPPING: tuple[Phase, ...] = ("prefill", "decode")
"""Phases whose limit follows the steps seen; the others have a fixed one."""


@dataclass(frozen=True)
class Limits:
    """Seconds. A step may take `factor` times the slowest seen, never less than `floor` or more than `ceiling`.

    `late_poll`: a poll that comes later than this proves that the supervisor itself was held up.
    `after_death`: how long the peers of a dead rank may go on, to report what they saw.
    """

    start: float = 120.0
    load: float = 120.0
    capture: float = 120.0
    teardown: float = 20.0
    floor: float = 2.0
    ceiling: float = 30.0
    factor: float = 20.0
    poll: float = 0.02
    late_poll: float = 0.5
    between_dumps: float = 0.2
    after_death: float = 1.0

    @classmethod
    def for_device(cls, device: str, *, shared: bool = False) -> "Limits":
        """Limits for ranks on `device` ("cpu", "cuda"); ranks that share one device are slowed by each other."""
        if shared:
            return cls(floor=cls.ceiling)
        return cls() if device == "cpu" else cls(floor=5.0)

    def limit(self, phase: Phase, slowest_step: float | None) -> float:
        """How long `phase` may pass without progress; the ceiling while no step has been timed."""
        if phase not in STEPPING:
            return self.ceiling_of(phase)
        if slowest_step is None:
            return self.ceiling
        return min(max(self.floor, self.factor * slowest_step), self.ceiling)

    def ceiling_of(self, phase: Phase) -> float:
        """How long `phase` may pass without progress even while its ranks are visibly at work."""
        fixed = {"start": self.start, "load": self.load, "capture": self.capture}
        fixed |= {"teardown": self.teardown, "done": self.teardown}
        return fixed.get(phase, self.ceiling)

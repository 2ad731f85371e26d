"""Owns the job file: what every rank of an attempt is told to do."""

from pathlib import Path

from graphcheck.schema.attempt import Delay
from graphcheck.schema.base import AxisValue, Record
from graphcheck.schema.suite import Workload


class Job(Record):
    """Written once an attempt (`job.json`), read by each of its ranks."""

    model_dir: Path
    settings: dict[str, AxisValue]
    fixes_off: tuple[str, ...] = ()
    delays: tuple[Delay, ...] = ()
    workload: Workload

    def delays_of(self, rank: int) -> dict[str, float]:
        """Site -> seconds by which `rank` is to be late there."""
        return {delay.site: delay.ms / 1e3 for delay in self.delays if delay.rank == rank}

    @property
    def num_ranks(self) -> int:
        return int(self.settings["tp"])
